package command

import (
	"fmt"

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
			generate := schema.Folder
			if ofBootstrap {
				generate = schema.Bootstrap
			}
			text, err := generate()
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&ofBootstrap, "bootstrap", false, "print that of a client's bootstrap instead")
	return cmd
}
