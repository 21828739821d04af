// Projects: files that users keep beyond sessions.

import { useRef, useState } from "preact/hooks";
import type { Project, ProjectFile, ProjectUsage } from "#gen/project_pb";
import { call, projects, save, ticket, upload } from "../api";
import { actAs, actingUser, userId } from "../capabilities";
import { bytes, clock, plural } from "../format";
import { newThread, openSession } from "../parts/start";
import { attempt, me, say } from "../store";
import { ask, Button, Empty, Name, usePoll } from "../ui";

export function UserField() {
  if (me.value?.userId) return null;
  return (
    <label>
      User <input value={actingUser.value} aria-label="User" onChange={(event) => actAs(event.currentTarget.value)} />
    </label>
  );
}

export function Projects() {
  const [all, setAll] = useState<Project[] | null>(null);
  const [usage, setUsage] = useState<ProjectUsage | undefined>();
  const [open, setOpen] = useState("");
  const user = userId();
  const load = async () => {
    const page = await call(projects.listProjects, { userId: user, pageSize: 1000 });
    setAll(page.projects);
    setUsage(page.usage);
  };
  usePoll(load, 5000, [user]);
  const create = async () => {
    const projectId = await ask("New project", "Name of the project", "Create", { input: "" });
    if (!projectId) return;
    await attempt(call(projects.createProject, { userId: user, projectId }));
    await attempt(load());
    setOpen(projectId);
  };
  return (
    <section>
      <h1>Projects</h1>
      <div class="row wrap">
        <UserField />
        <Button kind="main" onClick={create}>
          New project
        </Button>
        {usage && (
          <span class="faint">
            {plural(usage.files, "file")}, {bytes(usage.sizeBytes)} of {bytes(usage.maxSizeBytes)}, {bytes(usage.storedBytes)} stored
          </span>
        )}
      </div>
      {all && !all.length && <Empty>This user has no projects. Sessions that are opened with a project see its files in project_files/.</Empty>}
      <ul class="plain-list">
        {(all ?? []).map((project) => (
          <li key={project.projectId}>
            <button
              type="button"
              class="plain entry"
              aria-expanded={open === project.projectId}
              onClick={() => setOpen(open === project.projectId ? "" : project.projectId)}
            >
              <span aria-hidden="true">{open === project.projectId ? "▾" : "▸"}</span>
              <strong>
                <Name>{project.projectId}</Name>
              </strong>
              <span class="spring" />
              <span class="faint">
                {plural(project.files, "file")}, {bytes(project.sizeBytes)}
              </span>
            </button>
            {open === project.projectId && <ProjectFiles project={project} reload={load} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

function ProjectFiles({ project, reload }: { project: Project; reload: () => Promise<void> }) {
  const [all, setAll] = useState<ProjectFile[] | null>(null);
  const [sent, setSent] = useState<{ name: string; part: number } | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const ids = { userId: project.userId, projectId: project.projectId };
  const load = async () => setAll((await call(projects.listProjectFiles, { ...ids, pageSize: 1000 })).files);
  usePoll(load, 10_000, [project.projectId]);
  const send = async (chosen: File[]) => {
    for (const file of chosen) {
      const part = { case: "header" as const, value: { ...ids, name: file.name, sizeBytes: BigInt(file.size) } };
      setSent({ name: file.name, part: 0 });
      const done = await attempt(
        upload(projects.uploadProjectFile, { part }, file, (bytes) => setSent({ name: file.name, part: bytes / (file.size || 1) })),
      );
      if (done?.file && done.file.name !== file.name) say(`Stored as ${done.file.name}.`);
    }
    setSent(null);
    await attempt(load());
    await attempt(reload());
  };
  const download = async (file: ProjectFile) => {
    const url = await attempt(ticket(projects.downloadProjectFile, { ...ids, name: file.name }, file.name));
    if (url) save(url);
  };
  const remove = async (file: ProjectFile) => {
    if (!(await ask("Delete this file?", <Name>{file.name}</Name>, "Delete", { danger: true }))) return;
    await attempt(call(projects.deleteProjectFile, { ...ids, name: file.name }));
    await attempt(load());
  };
  const removeAll = async () => {
    if (!(await ask("Delete this project?", <Name>{project.projectId}</Name>, "Delete", { danger: true }))) return;
    await attempt(call(projects.deleteProject, ids));
    await attempt(reload());
  };
  return (
    <div
      class="kept"
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        void send([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      <div class="row wrap">
        <Button onClick={() => input.current?.click()}>Upload</Button>
        <Button onClick={() => openSession({ ...ids, threadId: newThread() })}>Start a session</Button>
        <Button kind="plain" onClick={removeAll}>
          Delete project
        </Button>
        {sent && (
          <span>
            <Name>{sent.name}</Name> <progress max={1} value={sent.part} aria-label={sent.name} />
          </span>
        )}
        <input
          ref={input}
          type="file"
          multiple
          hidden
          aria-label="Files to upload"
          onChange={(event) => {
            void send([...(event.currentTarget.files ?? [])]);
            event.currentTarget.value = "";
          }}
        />
      </div>
      {all && !all.length && <Empty>Drop files here.</Empty>}
      <table>
        <tbody>
          {(all ?? []).map((file) => (
            <tr key={file.name}>
              <td>
                <Name>{file.name}</Name>
              </td>
              <td class="faint">{file.mimeType}</td>
              <td>{bytes(file.sizeBytes)}</td>
              <td class="faint">{clock(file.createTime)}</td>
              <td class="actions">
                <Button kind="plain" title={`Download ${file.name}`} onClick={() => download(file)}>
                  ⤓
                </Button>
                <Button kind="plain" title={`Delete ${file.name}`} onClick={() => remove(file)}>
                  ✕
                </Button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
