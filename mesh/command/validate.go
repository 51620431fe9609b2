package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/mesh/internal/terminal"
)

func newValidate() *cobra.Command {
	var (
		authority, format string
		strict            bool
	)
	cmd := &cobra.Command{
		Use:   "validate DIR",
		Short: "Check a folder before it is served",
		Long: `Reads a folder as "dynxds serve" does, and prints what is wrong with it, each
fault with its file and line, and what in it clients cannot do, by kind of client. What would be served is decoded as clients of dynxds decode it. The exit
status is 0 only if it could be served, no client would get an error in the place
of a resource, and no client of dynxds would reject one.

For CI: --strict makes every warning a fault, and -o json prints all reports as one
list, whose entries have severity ("note", "warning", "error"), file, line, path and message.`,
		Args:              oneArgument,
		ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := site.Validate(cmd.Context(), args[0], authority)
			out := cmd.OutOrStdout()
			if v != nil {
				v.Strict = strict
			}
			if format == "json" {
				return cmdline.PrintValidationJSON(out, v, err)
			}
			if err != nil {
				return err
			}
			if warning := v.Warning(); warning != "" {
				_ = terminal.Print(out, styled.Text{{Style: styled.Doubtful, Text: fmt.Sprintf("%s: warning: %s", args[0], warning)}})
			}
			return cmdline.PrintValidation(out, v, args[0], "file")
		},
	}
	cmd.Flags().StringVar(&authority, "authority", "", "as for dynxds serve")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 also if there are warnings")
	cmdline.Output(cmd, &format, "print ", "text", "json")
	return cmd
}
