package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/exit"
)

func newRoot(run runDemo) *cobra.Command {
	root := &cobra.Command{
		Use:   "dynxds",
		Short: "xDS for gRPC-Go clients: a control plane, tools, and a demonstration",
		Long: `dynxds is a client-side xDS plugin for gRPC-Go: import it, dial "xds:///service",
and RPCs are routed and balanced as a control plane says. This command is such a
control plane, over a folder of services and MeshHTTPRoute policies; it writes the
bootstraps of clients and looks into running ones; and it has a demonstration.`,
		Example: "  dynxds demo\n  dynxds serve examples/mesh/config",
		// main prints the error, once and without the usage: most errors are not about the
		// command line.
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	root.Version = versionText()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(newDemo(run), newServe(), newRelay(), newApply(), newDiff(), newGet(), newHistory(), newRollback(), newValidate(),
		newRender(), newBootstrap(), newCerts(), newClients(), newStatus(), newExplain(), newVersion())
	for _, cmd := range append(root.Commands(), root) {
		cmd.Long = strings.TrimSuffix(cmp.Or(cmd.Long, cmd.Short+"."), "\n") + "\n\n" + exit.Help
	}
	return root
}

// checkNames has the commands that cobra adds reject names that they do not know. It is called after SetOut.
func checkNames(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				of, rest, err := root.Find(args)
				if err != nil {
					return err
				}
				return noCommand(of, rest)
			}
		case "completion":
			cmd.SuggestionsMinimumDistance = root.SuggestionsMinimumDistance
			cmd.Args, cmd.RunE = noCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// noCommand rejects arguments that are not a command.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		return fmt.Errorf("there is no command %q; did you mean %s?", args[0], strings.Join(like, " or "))
	}
	return fmt.Errorf("there is no command %q; see %s --help", args[0], cmd.CommandPath())
}

// noArgument is for commands without arguments.
func noArgument(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q; see %s --help", args[0], cmd.CommandPath())
}

// oneArgument is for commands with one argument, which their usage names.
func oneArgument(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fmt.Errorf("want one argument, got %d: %s", len(args), cmd.UseLine())
}
