-- Argo CD's health of a PromptGroup.
--   Progressing  nobody has looked at this generation yet, or replicas come up, warm, drain
--   Healthy      every wanted replica is warm and routed
--   Degraded     the spec cannot be acted on, or something keeps the group from its wanted state
--   Suspended    no replica is wanted
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "the operator has not looked at this generation yet"}
end
local found = {}
for _, condition in ipairs(status.conditions or {}) do
  found[condition.type] = condition
end
for _, kind in ipairs({"Accepted", "ResolvedRefs"}) do
  if found[kind] ~= nil and found[kind].status == "False" then
    return {status = "Degraded", message = found[kind].reason .. ": " .. found[kind].message}
  end
end
if found.Ready ~= nil and found.Ready.status == "True" then
  return {status = "Healthy", message = found.Ready.message}
end
if found.Degraded ~= nil and found.Degraded.status == "True" then
  return {status = "Degraded", message = found.Degraded.reason .. ": " .. found.Degraded.message}
end
if found.Ready ~= nil and found.Ready.reason == "ScaledToZero" then
  return {status = "Suspended", message = found.Ready.message}
end
return {status = "Progressing", message = found.Ready ~= nil and found.Ready.message or "no condition yet"}
