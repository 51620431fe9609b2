package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
	"github.com/dynxds/dynxds/meshroute"
)

const renderHelp = `Prints the resources that a client with these tags would get of "dynxds serve",
or, with --explain, which policies apply to its requests, and which of them each
field of the merged rules comes from.

What is printed, YAML or JSON, is what a folder may have, but for errors: an xDS
resource as it is, or an error in its place.`

var clientKinds = map[string]meshroute.Implementation{
	"dynxds": meshroute.Dynxds, "grpc-go": meshroute.GRPCGo, "grpc": meshroute.OtherGRPC, "envoy": meshroute.Envoy,
}

func newRender() *cobra.Command {
	var (
		view    site.View
		explain bool
		kind    string
		format  string
	)
	cmd := &cobra.Command{
		Use:     "render DIR",
		Short:   "Print what a client would get of a folder",
		Long:    renderHelp,
		Example: "  dynxds render examples/mesh/config --client service=frontend,version=v2 --explain",
		Args:    oneArgument,

		ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			view.Dir = args[0]
			var known bool
			if view.Implementation, known = clientKinds[kind]; !known {
				return fmt.Errorf("--kind %q: want dynxds, grpc-go, grpc or envoy", kind)
			}
			out := cmd.OutOrStdout()
			if explain {
				return site.Explain(out, view)
			}
			print := site.PrintYAML
			switch format {
			case "yaml":
			case "json":
				print = site.PrintJSON
			default:
				return fmt.Errorf("--output %q: want yaml or json", format)
			}
			items, err := site.Resources(view)
			if err != nil {
				return err
			}
			return print(out, items)
		},
	}
	f := cmd.Flags()
	f.Var(pairs{&view.Tags}, "client", "the client's service and tags")
	f.StringVar(&kind, "kind", "dynxds", "whose xDS client it is: dynxds, grpc-go, grpc (another language) or envoy")
	completeWith(cmd, "kind", "dynxds", "grpc-go", "grpc", "envoy")
	f.StringVar(&view.Service, "service", "", "only what a channel to this service gets")
	f.StringVar(&view.Authority, "authority", "", "under xdstp: names of this authority, as of serve")
	f.BoolVar(&explain, "explain", false, "print the merged policies and where each field comes from")
	f.StringVarP(&format, "output", "o", "yaml", "yaml or json (one resource a line)")
	completeWith(cmd, "output", "yaml", "json")
	cmd.MarkFlagsMutuallyExclusive("explain", "output")
	return cmd
}
