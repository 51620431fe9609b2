package command

import (
	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/site"
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

func newValidate() *cobra.Command {
	var (
		authority  string
		validating cmdline.Validating
	)
	cmd := &cobra.Command{
		Use:   "validate DIR",
		Short: "Check a folder before it is served",
		Long: `Reads a folder as "dynxds serve" does, and prints what is wrong with it, each
error with its file and line, and what in it clients cannot do, by kind of client. What would be served is decoded as clients of dynxds decode it. The exit
status is 0 only if it could be served, no client would get an error in the place
of a resource, and no client of dynxds would reject one.

` + cmdline.ForCI,
		Args:              cmdline.Arguments("one argument", 1, 1),
		ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := site.Validate(cmd.Context(), args[0], authority)
			return validating.Print(cmd.OutOrStdout(), v, err, args[0], "file")
		},
	}
	cmd.Flags().StringVar(&authority, "authority", "", "as for dynxds serve")
	validating.Add(cmd)
	return cmd
}

// oneFolder completes a single argument DIR.
func oneFolder(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// services completes a flag with the services of the folder that is the first argument.
func services(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 || !isFolder(args[0]) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return site.Services(args[0]), cobra.ShellCompDirectiveNoFileComp
}
