package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/schema"
)

func newSchema() *cobra.Command {
	var ofBootstrap bool
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the documents of a folder or of a bootstrap, for editors",
		Args:  cmdline.NoArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := schema.Folder
			if ofBootstrap {
				text = schema.Bootstrap
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().BoolVar(&ofBootstrap, "bootstrap", false, "print that of a client's bootstrap instead")
	return cmd
}
