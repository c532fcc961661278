-- A call whose body has 1.6 MB, what six blobs come to as JSON.
local before = '{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"0x6b175474e89094c44da98b954eedeac495271d0f","data":"0x'
local after = '"},"latest"]}'
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = before .. string.rep("a", 1600000 - #before - #after) .. after
