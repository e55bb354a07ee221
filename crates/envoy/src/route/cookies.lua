-- Changes the attributes of cookies that a response sets. The filter state has a line for each cookie: its name, and
-- after semicolons the attributes to replace, with a plus, or to remove, with a minus. Each pattern takes linear time.

local HEADER = "set-cookie"

-- The maximum number of attributes of a cookie; others are removed. Browsers know fewer than ten.
local MAX_ATTRIBUTES = 32

-- The name of an attribute, in lowercase.
local function name_of(attribute)
  return attribute:match("^%s*([^%s=]*)"):lower()
end

local function changed(cookie, change)
  local replaced = {}
  for attribute in change:gmatch(";[-+]([^;]*)") do
    replaced[name_of(attribute)] = true
  end
  local parts = { cookie:match("^[^;]*") }
  local count = 0
  for attribute in cookie:gmatch(";([^;]*)") do
    count = count + 1
    if count > MAX_ATTRIBUTES then
      break
    end
    if not replaced[name_of(attribute)] then
      parts[#parts + 1] = attribute
    end
  end
  for attribute in change:gmatch(";%+([^;]*)") do
    parts[#parts + 1] = " " .. attribute
  end
  return table.concat(parts, ";")
end

function envoy_on_response(handle)
  local lines = handle:streamInfo():filterState():get("sesame.cookies")
  if not lines then
    return
  end
  local headers = handle:headers()
  local changes = {}
  for name, change in lines:gmatch("([^;\n]+)([^\n]*)") do
    changes[name] = change
  end
  local cookies, any = {}, false
  for index = 1, headers:getNumValues(HEADER) do
    local cookie = headers:getAtIndex(HEADER, index - 1)
    local name = cookie:match("^%s*([^%s=;]+)%s*=")
    local change = name and changes[name]
    if change then
      cookie = changed(cookie, change)
      any = true
    end
    cookies[index] = cookie
  end
  if any then
    headers:remove(HEADER)
    for _, cookie in ipairs(cookies) do
      headers:add(HEADER, cookie)
    end
  end
end
