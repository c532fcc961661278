-- A call that is answered with 50 MB.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"jsonrpc":"2.0","id":1,"method":"debug_traceBlockByNumber","params":["0x1"]}'
