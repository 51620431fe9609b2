package command

import (
	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/site"
)

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
