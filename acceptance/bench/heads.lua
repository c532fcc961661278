-- Calls of which no two have the same head, as behind a tracing proxy. Runs begin at different times.
local run, number = string.format("%08x", os.time()), 0
local top = "POST / HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\nContent-Length: 63\r\ntraceparent: 00-"
local rest = '-00f067aa0ba902b7-01\r\n\r\n{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}'

request = function()
    number = number + 1
    return top .. run .. string.format("%024x", number) .. rest
end
