"""The steps that change who owns what. Redis runs each of them as one.

All keys begin with one hash tag, so that they are in one slot of a Redis Cluster:

- `:era`: the store's run id and a nonce. A new era begins when the run id is another one, when the
  store was emptied, when its clock made a step or nobody spoke to it for long, and when a worker
  knows of a later era: in each case writes may be missing.
- `:workers`, `:w:ID`: the workers; `told` is the era in which a worker has asserted all it holds.
- `:s:SLOT`: the session of a thread; `granted` and `asserted` are eras.
- `:fences`: which workers were declared lost of late.

The barrier: until every known worker has asserted what it holds, or as long as one that is cut off
may still serve, no session that seems free is given to anybody.

An epoch is the store's time in milliseconds, or one more than the last: it grows even if the record
of the session is lost. Replies are JSON, with whole numbers as strings.
"""

from __future__ import annotations

CLOCK = """
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
"""

RUN_ID = """
local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end
"""

# Milliseconds that a claim of a free session has still to wait.
BARRIER = """
local function barrier()
  if era.settled == '1' then return 0 end
  local left = tonumber(era.started) + c.lease - now
  if left > 0 then
    if era.unknown == '1' then return left end
    for _, id in ipairs(redis.call('SMEMBERS', base .. ':workers')) do
      if redis.call('HGET', base .. ':w:' .. id, 'told') ~= era.nonce then
        return math.min(left, c.renew)
      end
    end
  end
  era.settled = '1'
  redis.call('HSET', base .. ':era', 'settled', '1')
  return 0
end
"""

_HEAD = """
local base = KEYS[1]
local c = cjson.decode(ARGV[1])
local a = cjson.decode(ARGV[2])

local function int(n) return string.format('%.0f', n) end
local function hash(key)
  local flat = redis.call('HGETALL', key)
  local found = {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end
local function reply(...) return cjson.encode({...}) end

local now = clock()
local era = hash(base .. ':era')
"""

_ERA = """
local function begin_era(run)
  local number = math.max(tonumber(era.number or '0'), c.number) + 1
  local unknown = era.run and '0' or '1'
  if era.unknown == '1' and era.settled ~= '1' then unknown = '1' end
  era = {run = run, nonce = c.nonce, number = int(number), started = int(now), seen = int(now),
         unknown = unknown, settled = '0'}
  redis.call('HSET', base .. ':era', 'run', era.run, 'nonce', era.nonce, 'number', era.number,
             'started', era.started, 'seen', era.seen, 'unknown', era.unknown, 'settled', '0')
end

local run = run_id()
if not run then return redis.error_reply('the store does not tell its run id') end
if era.run ~= run or tonumber(era.number) < c.number
    or math.abs(now - tonumber(era.seen)) > c.gap then
  begin_era(run)
elseif now - tonumber(era.seen) > c.gap / 8 or now < tonumber(era.seen) then
  redis.call('HSET', base .. ':era', 'seen', int(now))
end

local my_key = base .. ':w:' .. c.worker
local me = hash(my_key)

local function is_registered()
  return me.generation == c.generation and me.state ~= 'lost'
end

-- Why this worker may not write, or nil.
local function obstacle()
  if not is_registered() then return 'fenced' end
  if me.told ~= era.nonce then return 'assert' end
  if tonumber(me.renewed) + c.write < now then return 'assert' end
  return nil
end
"""

_OVER = """
-- Whether a worker has ceased to serve, by its own clock.
local function is_over(w)
  local since = w.told == era.nonce and tonumber(w.renewed)
    or tonumber(era.started or '0')
  return since + c.lease <= now
end
"""

_FENCE = """
local function fence(id, by_operator)
  local key = base .. ':fences'
  redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now - c.lease))
  local most = math.max(2, math.floor(redis.call('SCARD', base .. ':workers') / 10))
  if not by_operator and redis.call('ZCARD', key) >= most then return false end
  redis.call('ZADD', key, int(now), id)
  redis.call('HSET', base .. ':w:' .. id, 'state', 'lost')
  return true
end
"""

_OWN = """
local key = base .. ':s:' .. a.slot
local r = hash(key)
local why = obstacle()
if why then return reply(why, era.nonce) end
if r.state ~= 'held' or r.worker ~= c.worker or r.epoch ~= a.epoch or r.session_id ~= a.session_id
then
  return reply('stolen', era.nonce)
end
"""

REGISTER = """
if me.generation and me.instance ~= a.instance and me.state ~= 'lost' and not is_over(me) then
  return reply('taken', int(c.lease))
end
local generation = int(math.max(tonumber(me.generation or '0'), a.known) + 1)
local is_known = me.instance == a.instance
redis.call('HSET', my_key, 'generation', generation, 'instance', a.instance, 'state', a.state,
           'address', a.address, 'version', a.version, 'load', a.load, 'renewed', int(now),
           'since', is_known and me.since or int(now), 'told', '',
           'told_before', is_known and me.told or '')
redis.call('SADD', base .. ':workers', c.worker)
for _, id in ipairs(redis.call('SMEMBERS', base .. ':workers')) do
  local w = redis.call('HMGET', base .. ':w:' .. id, 'state', 'renewed')
  if not w[1] or (w[1] == 'lost' and tonumber(w[2]) + c.forget < now) then
    redis.call('DEL', base .. ':w:' .. id)
    redis.call('SREM', base .. ':workers', id)
  end
end
return reply('ok', generation, era.nonce, era.number)
"""

RENEW = """
if not is_registered() then return reply('fenced', era.nonce) end
redis.call('HSET', my_key, 'renewed', int(now), 'state', a.state, 'address', a.address,
           'version', a.version, 'load', a.load)
if a.told == era.nonce and me.told ~= era.nonce then
  redis.call('HSET', my_key, 'told', era.nonce)
  me.told = era.nonce
end
redis.call('HSET', base .. ':era', 'seen', int(now))
local wait = barrier()
return reply('ok', era.nonce, era.number, me.told == era.nonce, wait == 0)
"""

ASSERT = """
if not is_registered() then return reply('fenced', era.nonce) end
local is_settled = barrier() == 0
local was_told = me.told == era.nonce or me.told_before == era.nonce
local lost = {}
for _, s in ipairs(a.sessions) do
  local key = base .. ':s:' .. s.slot
  local r = hash(key)
  local mine
  if not r.epoch then
    mine = not was_told -- otherwise it was closed meanwhile, and nothing of it is kept
  elseif r.digest ~= s.digest then
    mine = false
  elseif tonumber(r.epoch) == tonumber(s.epoch) then
    mine = r.worker == c.worker and r.state == 'held'
  elseif tonumber(r.epoch) > tonumber(s.epoch) or r.granted == era.nonce then
    mine = false
  else
    -- The record is older than the claim. Once the barrier has gone up, whoever asserted serves.
    mine = not (is_settled and r.asserted == era.nonce and r.worker ~= c.worker)
  end
  if mine then
    redis.call('HSET', key, 'session_id', s.session_id, 'digest', s.digest, 'state', 'held',
               'worker', c.worker, 'epoch', s.epoch, 'asserted', era.nonce)
    if not r.seq or tonumber(s.seq) >= tonumber(r.seq) then
      redis.call('HSET', key, 'head', s.head, 'seq', s.seq)
    end
    redis.call('PEXPIRE', key, int(c.held))
  else
    lost[#lost + 1] = s.session_id
  end
end
return reply('ok', era.nonce, era.number, is_settled, unpack(lost))
"""

CLAIM = """
local why = obstacle()
if why then return reply(why, era.nonce) end
local key = base .. ':s:' .. a.slot
local r = hash(key)
if r.digest and r.digest ~= a.digest then return reply('collision', era.nonce) end

local function mine(origin)
  return reply('mine', era.nonce, r.session_id, r.epoch, r.head, r.seq, origin)
end

local is_held = r.state == 'held'
if is_held and r.worker == c.worker and r.epoch == a.known then return mine('known') end
if is_held and r.worker ~= c.worker then
  local w = hash(base .. ':w:' .. r.worker)
  local is_lost = not w.generation or w.state == 'lost'
  if a.takes and not is_lost and is_over(w) then
    if not fence(r.worker, false) then return reply('waits', era.nonce, int(c.renew)) end
    is_lost = true
  end
  if not (a.takes and is_lost) then
    return reply('elsewhere', era.nonce, r.session_id, r.worker, w.address or '', r.epoch)
  end
end

-- From here on somebody else might still own it under a claim that the store has forgotten.
local wait = math.max(barrier(), tonumber(me.since) + c.renew - now)
if wait > 0 then return reply('waits', era.nonce, int(wait)) end

local origin = r.state == 'parked' and 'parked' or is_held and 'taken' or 'new'
if origin == 'new' then r = {session_id = a.session_id, epoch = r.epoch, head = '', seq = '0'} end
r.epoch = int(math.max(now, tonumber(r.epoch or '0') + 1))
redis.call('HSET', key, 'session_id', r.session_id, 'digest', a.digest, 'state', 'held',
           'worker', c.worker, 'epoch', r.epoch, 'granted', era.nonce,
           'head', r.head, 'seq', r.seq)
redis.call('PEXPIRE', key, int(c.held))
return mine(origin)
"""

COMMIT = """
if tonumber(a.seq) > tonumber(r.seq) then
  redis.call('HSET', key, 'head', a.head, 'seq', a.seq)
end
redis.call('PEXPIRE', key, int(c.held))
return reply('ok', era.nonce)
"""

RELEASE = """
redis.call('HSET', key, 'state', a.state, 'epoch', int(tonumber(r.epoch) + 1),
           'granted', era.nonce)
if a.seq and tonumber(a.seq) >= tonumber(r.seq) then
  redis.call('HSET', key, 'head', a.head, 'seq', a.seq)
end
redis.call('PEXPIRE', key, int(math.max(a.keep, c.tombstone)))
return reply('ok', era.nonce)
"""

LEAVE = """
if is_registered() then
  redis.call('DEL', my_key)
  redis.call('SREM', base .. ':workers', c.worker)
end
return reply('ok', era.nonce)
"""

FENCE = """
local w = hash(base .. ':w:' .. a.target)
if not w.generation or w.state == 'lost' then return reply('ok', era.nonce) end
if not is_over(w) then return reply('runs', era.nonce) end
fence(a.target, true)
return reply('ok', era.nonce)
"""

FIND = """
local r = hash(base .. ':s:' .. a.slot)
if not r.epoch then return reply('none') end
local w = hash(base .. ':w:' .. r.worker)
local state = r.state
if state == 'held' and (not w.generation or w.state == 'lost' or is_over(w)) then state = 'lost' end
return reply('place', r.digest, r.session_id, r.worker, w.address or '', r.epoch, state,
             r.head, r.seq)
"""

# It writes, so that a store which others have left behind cannot answer it.
CONFIRM = """
redis.call('HSET', base .. ':era', 'seen', int(now))
local wait = barrier()
if wait > 0 then return reply('waits', int(wait)) end
"""

WORKERS = """
local found = {'workers'}
for _, id in ipairs(redis.call('SMEMBERS', base .. ':workers')) do
  local w = hash(base .. ':w:' .. id)
  if w.generation then
    local state = is_over(w) and 'lost' or w.state
    local left = math.max(0, tonumber(w.renewed) + c.lease - now)
    if state == 'lost' then left = 0 end
    found[#found + 1] = {id, w.address, w.generation, state, int(left), w.version, w.load}
  end
end
return cjson.encode(found)
"""

_WRITING = {
    "register": _OVER + REGISTER,
    "renew": BARRIER + RENEW,
    "assert": BARRIER + ASSERT,
    "claim": _OVER + _FENCE + BARRIER + CLAIM,
    "commit": _OWN + COMMIT,
    "release": _OWN + RELEASE,
    "leave": LEAVE,
    "fence": _OVER + _FENCE + FENCE,
    "confirm": _OVER + BARRIER + CONFIRM + FIND,
}
_READING = {"find": _OVER + FIND, "workers": _OVER + WORKERS}
READING = frozenset(_READING)
"""Names of the scripts that change nothing."""


def all_scripts() -> dict[str, str]:
    """Every script by its name."""
    writing = {name: CLOCK + RUN_ID + _HEAD + _ERA + body for name, body in _WRITING.items()}
    reading = {name: CLOCK + _HEAD + body for name, body in _READING.items()}
    return writing | reading
