package main

import (
	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
)

const renderHelp = `Prints the resources that a client with these tags would get from "dynxds serve",
or, with --explain, which policies apply to its requests, and from which of them each
field of the merged rules comes.

The output, YAML or JSON, has a document for each: an xDS resource as it is, which a
folder may contain too, or the error in its place.`

func newRender() *cobra.Command {
	var (
		client  clientFlags
		explain bool
		format  string
	)
	cmd := &cobra.Command{
		Use:     "render DIR",
		Short:   "Print what a client would get from a folder",
		Long:    renderHelp,
		Example: "  dynxds render examples/mesh/config --client service=frontend,version=v2 --explain",
		Args:    oneArgument,

		ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			view := client.view(args[0])
			out := cmd.OutOrStdout()
			if explain {
				return site.Explain(out, view)
			}
			items, err := site.Resources(view)
			if err != nil {
				return err
			}
			if format == "json" {
				return site.PrintJSON(out, items)
			}
			return site.PrintYAML(out, items)
		},
	}
	f := cmd.Flags()
	client.add(cmd)
	f.StringVar(&client.of.Service, "service", "", "only what a channel to this service gets")
	completeServices(cmd, "service")
	f.BoolVar(&explain, "explain", false, "print the merged policies and where each field comes from")
	outputFlag(cmd, &format, "print (JSON: one resource a line) ", "yaml", "json")
	cmd.MarkFlagsMutuallyExclusive("explain", "output")
	return cmd
}
