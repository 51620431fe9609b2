package main

import (
	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// clientFlags describe a client of a folder, for the commands that say what it would get.
type clientFlags struct {
	of   site.View
	kind string
}

var clientKinds = map[string]meshroute.Implementation{
	"dynxds": meshroute.Dynxds, "grpc-go": meshroute.GRPCGo, "grpc": meshroute.OtherGRPC, "envoy": meshroute.Envoy,
}

func (c *clientFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	pairsVar(cmd, &c.of.Tags, "client", "the client's service and tags")
	choiceVar(cmd, &c.kind, "kind", "", "dynxds", "whose xDS client it is (grpc: another language): ", "dynxds", "grpc-go", "grpc", "envoy")
	f.StringVar(&c.of.Authority, "authority", "", "use xdstp: names under this authority, as for dynxds serve")
}

// view returns what the flags say, for a folder.
func (c *clientFlags) view(dir string) site.View {
	v := c.of
	v.Dir, v.Implementation = dir, clientKinds[c.kind]
	return v
}
