"""The node: raw HTTP/1.1 connections (`pool`), JSON-RPC over them (`client`), cached account reads (`accounts`)."""
