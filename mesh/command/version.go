package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of dynxds, gRPC and Go",
		Args:  cmdline.NoArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmdline.Version("dynxds"))
			return err
		},
	}
}
