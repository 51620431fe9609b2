package cmdline

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/exit"
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

// RPC is one that a command explains.
type RPC struct {
	// Request is complete when Check has been called. The command sets its Target and Method before.
	Request           explain.Request
	headers, expected []string
}

// Add adds the flags.
func (r *RPC) Add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVarP(&r.headers, "header", "H", nil, "a header of the RPC, 'name: value'; may be repeated")
	f.StringArrayVar(&r.expected, "expect", nil, "a cluster that RPCs have to go to; may be repeated")
	f.StringVar(&r.Request.Authority, "channel-authority", "", "the channel's authority, if grpc.WithAuthority sets it")
	f.StringVar(&r.Request.Listener, "listener", "", "the name of the Listener, if the target does not give it")
	f.BoolVar(&r.Request.Secure, "secure", false, "the channel has TLS, so that the scheme is https")
}

// Check completes the request. The error is about the command line.
func (r *RPC) Check() error {
	r.Request.Headers = make(map[string][]string, len(r.headers))
	for _, line := range r.headers {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return exit.Usagef("header %q: want 'name: value'", line)
		}
		r.Request.Headers[name] = append(r.Request.Headers[name], strings.TrimSpace(value))
	}
	return exit.With(exit.Usage, r.Request.Check())
}

// Judge returns an error if RPCs do not go where --expect says.
func (r *RPC) Judge(e *explain.Explanation) error {
	if len(r.expected) > 0 {
		if miss := e.Misses(r.expected); miss != "" {
			return fmt.Errorf("RPCs do not go as --expect says: %s", miss)
		}
	}
	return nil
}
