// CodeMirror, for files and for code. It imports nothing else of the console, so that its chunk seldom changes.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { Compartment, EditorState, RangeSet, StateEffect, StateField, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, gutter, GutterMarker, highlightActiveLine, keymap, lineNumbers, Decoration } from "@codemirror/view";
import { tags } from "@lezer/highlight";

function languageOf(name: string): Extension {
  if (/\.py$/i.test(name)) return python();
  if (/\.json$/i.test(name)) return json();
  if (/\.[cm]?[jt]sx?$/i.test(name)) return javascript({ typescript: /\.[cm]?tsx?$/i.test(name) });
  if (/\.(sh|bash)$/i.test(name)) return StreamLanguage.define(shell);
  return [];
}

const colours = HighlightStyle.define([
  { tag: tags.keyword, class: "code-keyword" },
  { tag: [tags.string, tags.special(tags.string)], class: "code-string" },
  { tag: [tags.number, tags.bool, tags.null], class: "code-number" },
  { tag: tags.comment, class: "code-comment" },
  { tag: [tags.function(tags.variableName), tags.definition(tags.variableName), tags.propertyName], class: "code-name" },
]);

export interface Shown {
  close(): void;
  text(): string;
  mark(line: number | null): void;
  breakpoints(): number[];
}

const setCurrent = StateEffect.define<number | null>();
const current = StateField.define({
  create: () => Decoration.none,
  update(value, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(setCurrent)) continue;
      const line = effect.value;
      if (line === null || line < 1 || line > transaction.state.doc.lines) return Decoration.none;
      return Decoration.set([Decoration.line({ class: "current-line" }).range(transaction.state.doc.line(line).from)]);
    }
    return value.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

const toggle = StateEffect.define<number>();
class Mark extends GutterMarker {
  override elementClass = "breakpoint";
  override toDOM(): Node {
    return document.createTextNode("●");
  }
}
const mark = new Mark();
const points = StateField.define<RangeSet<GutterMarker>>({
  create: () => RangeSet.empty,
  update(value, transaction) {
    let kept = value.map(transaction.changes);
    for (const effect of transaction.effects) {
      if (!effect.is(toggle)) continue;
      let isThere = false;
      kept.between(effect.value, effect.value, () => void (isThere = true));
      kept = isThere
        ? kept.update({ filter: (from) => from !== effect.value })
        : kept.update({ add: [mark.range(effect.value)] });
    }
    return kept;
  },
});
const breakpoints: Extension = [
  points,
  gutter({
    class: "breakpoints",
    markers: (view) => view.state.field(points),
    initialSpacer: () => mark,
    domEventHandlers: {
      mousedown(view, line) {
        view.dispatch({ effects: toggle.of(line.from) });
        return true;
      },
    },
  }),
];

// Text that replaces a selection: the browser would keep the style of what it removes in a style attribute, which the page's policy refuses.
const replacing = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { state } = view;
    if (event.inputType !== "insertText" || !event.data || state.selection.main.empty) return false;
    view.dispatch(state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

export function edit(
  box: HTMLElement,
  text: string,
  name: string,
  onSave: (text: string) => Promise<boolean>,
  onChange: () => void,
  options: { isDark?: boolean; breakpoints?: boolean; onRun?: () => void } = {},
): Shown {
  // In a shadow root CodeMirror uses constructed style sheets, which the page's policy allows.
  const host = document.createElement("div");
  host.className = "editor-host";
  box.replaceChildren(host);
  const root = host.attachShadow({ mode: "open" });
  root.adoptedStyleSheets = [sheet()];
  const inner = document.createElement("div");
  root.append(inner);
  const { onRun } = options;
  const keys = [
    {
      key: "Mod-s",
      preventDefault: true,
      run: (view: EditorView) => {
        void onSave(view.state.sliceDoc());
        return true;
      },
    },
    ...(onRun ? ["Shift-Enter", "Mod-Enter"].map((key) => ({ key, run: () => (onRun(), true) })) : []),
  ];
  const wrapping = new Compartment();
  const view = new EditorView({
    parent: inner,
    root,
    state: EditorState.create({
      doc: text,
      extensions: [
        text.includes("\r") ? EditorState.lineSeparator.of(separatorOf(text)) : [],
        options.breakpoints ? breakpoints : [],
        lineNumbers(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        highlightActiveLine(),
        replacing,
        current,
        syntaxHighlighting(colours),
        keymap.of([...keys, indentWithTab, ...defaultKeymap, ...historyKeymap]),
        languageOf(name),
        wrapping.of(EditorView.lineWrapping),
        EditorView.theme({}, { dark: options.isDark ?? false }),
        EditorView.contentAttributes.of({ "aria-label": name }),
        EditorView.updateListener.of((update) => update.docChanged && onChange()),
      ],
    }),
  });
  return {
    close: () => view.destroy(),
    text: () => view.state.sliceDoc(),
    mark: (line) => view.dispatch({ effects: setCurrent.of(line) }),
    breakpoints: () => {
      const found: number[] = [];
      if (options.breakpoints) view.state.field(points).between(0, view.state.doc.length, (from) => void found.push(view.state.doc.lineAt(from).number));
      return found;
    },
  };
}

// Without it the editor would make all line ends alike. Where they are mixed, a carriage return is a character of its line.
function separatorOf(text: string): string {
  return /(^|[^\r])\n/.test(text) ? "\n" : "\r\n";
}

function sheet(): CSSStyleSheet {
  const made = new CSSStyleSheet();
  made.replaceSync(`
    :host, :host > div { display: grid; min-width: 0; min-height: 0; }
    .cm-editor.cm-focused { outline: none; }
    .cm-editor { min-width: 0; min-height: 0; color: var(--text); background: var(--sunken); font-size: 13px; }
    .cm-scroller { font-family: var(--mono); }
    .cm-editor .cm-gutters { background: var(--sunken); color: var(--faint); border: 0; }
    .cm-editor .cm-activeLine, .cm-editor .cm-activeLineGutter { background: var(--raised); }
    .cm-editor .cm-cursor { border-color: var(--text); }
    .cm-editor .cm-selectionBackground, .cm-editor.cm-focused .cm-selectionBackground { background: var(--selection) !important; }
    .current-line { background: var(--selection) !important; }
    .cm-editor .breakpoints { min-width: 14px; cursor: pointer; }
    .breakpoint { color: var(--bad); }
    .code-keyword { color: var(--series-2); } .code-string { color: var(--series-1); } .code-number { color: var(--series-3); }
    .code-comment { color: var(--faint); } .code-name { color: var(--accent); }
  `);
  return made;
}
