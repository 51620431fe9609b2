package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/schema"
)

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the documents of a folder, for editors",
		Args:  cmdline.NoArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := schema.Folder()
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
			}
			return err
		},
	}
}
