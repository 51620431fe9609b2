package main

import (
	"fmt"

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
	f.Var(pairs{&c.of.Tags}, "client", "the client's service and tags")
	f.StringVar(&c.kind, "kind", "dynxds", "whose xDS client it is: dynxds, grpc-go, grpc (another language) or envoy")
	completeWith(cmd, "kind", "dynxds", "grpc-go", "grpc", "envoy")
	f.StringVar(&c.of.Authority, "authority", "", "use xdstp: names under this authority, as for dynxds serve")
}

// view returns what the flags say, for a folder.
func (c *clientFlags) view(dir string) (site.View, error) {
	v, known := c.of, false
	if v.Implementation, known = clientKinds[c.kind]; !known {
		return v, fmt.Errorf("--kind %q: want dynxds, grpc-go, grpc or envoy", c.kind)
	}
	v.Dir = dir
	return v, nil
}
