// Package cmdline is what the command lines of dynxds and of dynxds-kubernetes have in common: flags that check their texts, flags and
// output of commands that both have, help, errors and exit statuses. It is not for what commands do.
package cmdline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/errorcode"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/mesh/internal/terminal"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// Prepare completes a program: its version, its errors about flags, and the exit statuses in all help texts.
func Prepare(root *cobra.Command) {
	// Execute prints the error, once and without the usage: most errors are not about the command line.
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Args = NoCommand
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SuggestionsMinimumDistance = 2
	root.Version = Version(root.Name())
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			var known []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
			if nearest := faults.Nearest(unknown.GetSpecifiedName(), known); nearest != "" {
				return fmt.Errorf("%w; did you mean --%s?", err, nearest)
			}
		}
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	for _, cmd := range append(root.Commands(), root) {
		cmd.Long = strings.TrimSuffix(cmp.Or(cmd.Long, cmd.Short+"."), "\n") + "\n\n" + exit.Help
	}
}

// Execute runs the command line of a program that Prepare has completed, and returns the exit status.
func Execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	out, errs := terminal.New(stdout), terminal.New(stderr)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	checkNames(root)
	began := false // then errors are not about flags or arguments
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		err := cmd.ValidateFlagGroups()
		began = err == nil
		return err
	}
	err := root.ExecuteContext(ctx)
	if err != nil && !began {
		err = exit.With(exit.Usage, err)
	}
	if err != nil && !exit.Silent(err) {
		_ = terminal.Print(errs, errorLines(root.Name(), err)) // who reads it may have gone
	}
	return exit.Code(err)
}

// errorLines returns the text of an error; those in documents and bootstraps have their codes, and those in documents show the lines
// that are wrong.
func errorLines(name string, err error) (lines styled.Text) {
	several, ok := errors.AsType[*faults.Faults](err)
	if ok && several.Source != "" {
		coded := faults.Faults{Source: several.Source, Omitted: several.Omitted}
		for _, f := range several.List {
			coded.List = append(coded.List, errorcode.Marked(f, true))
		}
		err = errors.New(strings.Replace(err.Error(), several.Error(), coded.Error(), 1))
	}
	if !ok || several.Source != "" || len(several.List) == 0 {
		lines.AddAll(styled.Bad, fmt.Sprintf("%s: %s", name, err))
		return lines
	}
	lead := name + ": "
	for _, f := range several.List {
		lines.AddAll(styled.Bad, lead+errorcode.Marked(f, false).String())
		lead = ""
		for _, line := range document.Excerpt(f) {
			lines.AddAll(styled.Plain, line)
		}
	}
	if several.Omitted > 0 {
		lines.Add(styled.Bad, "and %d more", several.Omitted)
	}
	return lines
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
				return NoCommand(of, rest)
			}
		case "completion":
			cmd.SuggestionsMinimumDistance = root.SuggestionsMinimumDistance
			cmd.Args, cmd.RunE = NoCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// Arguments is for commands with so many arguments, which their usage names; want says that in words.
func Arguments(want string, from, to int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if from <= len(args) && len(args) <= to {
			return nil
		}
		return fmt.Errorf("want %s, got %d: %s", want, len(args), cmd.UseLine())
	}
}

// NoCommand rejects arguments that are not a command.
func NoCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		return fmt.Errorf("there is no command %q; did you mean %s?", args[0], strings.Join(like, " or "))
	}
	return fmt.Errorf("there is no command %q; see %s --help", args[0], cmd.CommandPath())
}

// NoArgument is for commands without arguments.
func NoArgument(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q; see %s --help", args[0], cmd.CommandPath())
}

// Version has the versions of a program and of its parts.
func Version(program string) string {
	return fmt.Sprintf("%s %s, gRPC-Go %s, %s %s/%s", program, bootstrap.UserAgentVersion, grpc.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
