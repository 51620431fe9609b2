package command

import (
	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
)

const renderHelp = `Prints the resources that a client with these tags would get from "dynxds serve",
or, with --explain, which policies apply to its requests, and from which of them each
field of the merged rules comes.

The output, YAML or JSON, has a document for each: an xDS resource as it is, which a
folder may contain too, or the error in its place.`

func newRender() *cobra.Command {
	var (
		client    cmdline.Client
		rendering cmdline.Rendering
	)
	cmd := &cobra.Command{
		Use:     "render DIR",
		Short:   "Print what a client would get from a folder",
		Long:    renderHelp,
		Example: "  dynxds render examples/mesh/config --client service=frontend,version=v2 --explain",
		Args:    cmdline.Arguments("one argument", 1, 1),

		ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			view := client.View()
			view.Dir = args[0]
			return rendering.Print(cmd.OutOrStdout(), view)
		},
	}
	client.Add(cmd)
	cmd.Flags().StringVar(&client.Of.Service, "service", "", "only what a channel to this service gets")
	cmdline.Complete(cmd, "service", services)
	rendering.Add(cmd)
	return cmd
}
