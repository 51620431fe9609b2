// Command dynxds is a control plane for gRPC clients, with the tools for it: "dynxds help" lists the commands. What it does is in
// package command of mesh; it has a folder and a module of its own for "go run ./cmd/dynxds" and "go install".
package main

import "github.com/dynxds/dynxds/mesh/command"

func main() { command.Main() }
