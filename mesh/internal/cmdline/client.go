package cmdline

import (
	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// Client is the client that commands such as render show resources for.
type Client struct {
	// Of has the client's service, tags and authority from flags.
	Of   site.View
	kind string
}

var clientKinds = map[string]meshroute.Implementation{
	"dynxds": meshroute.Dynxds, "grpc-go": meshroute.GRPCGo, "grpc": meshroute.OtherGRPC, "envoy": meshroute.Envoy,
}

// Add adds the flags.
func (c *Client) Add(cmd *cobra.Command) {
	f := cmd.Flags()
	Pairs(cmd, &c.Of.Tags, "client", "the client's service and tags")
	Choice(cmd, &c.kind, "kind", "", "dynxds", "whose xDS client it is (grpc: another language): ", "dynxds", "grpc-go", "grpc", "envoy")
	f.StringVar(&c.Of.Authority, "authority", "", "use xdstp: names under this authority, as for dynxds serve")
}

// View returns what the flags say. Whose view it is, is missing: a folder or a content.
func (c *Client) View() site.View {
	v := c.Of
	v.Implementation = clientKinds[c.kind]
	return v
}
