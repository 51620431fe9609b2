package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/errorcode"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/schema"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "dynxds",
		Short: "xDS for gRPC-Go clients: a control plane, tools, and a demonstration",
		Long: `dynxds is a client-side xDS plugin for gRPC-Go: import it, dial "xds:///service",
and RPCs are routed and balanced as a control plane says. This command is such a
control plane, over a folder of services and MeshHTTPRoute policies; it writes the
bootstraps of clients and looks into running ones; and it has a demonstration.`,
		Example: "  dynxds demo\n  dynxds serve examples/mesh/config",
	}
	root.AddCommand(newDemo(), newServe(), newRelay(), newApply(), newValidate(), newRender(),
		newBootstrap(), newClients(), newTop(), newStatus(), newDoctor(), newExplain(), newExplainCode(), newSchema(), newVersion())
	cmdline.Prepare(root)
	return root
}

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

func newExplainCode() *cobra.Command {
	var ids []string
	var list strings.Builder
	for _, c := range errorcode.All() {
		ids = append(ids, c.ID)
		fmt.Fprintf(&list, "  %s  %s\n", c.ID, c.Title)
	}
	return &cobra.Command{
		Use:       "explain-code CODE",
		Short:     "Print what the code of an error means, with an example",
		Long:      "Prints the cause of an error in a document (D…) or in a bootstrap (B…), an example of it, and the\nexample without the error. The codes:\n\n" + list.String(),
		Args:      cmdline.Arguments("one argument", 1, 1),
		ValidArgs: ids,
		RunE: func(cmd *cobra.Command, args []string) error {
			code := errorcode.Find(args[0])
			if code == nil {
				return exit.With(exit.Usage, fmt.Errorf("there is no code %q; see dynxds explain-code --help", args[0]))
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), code.Text)
			return err
		},
	}
}
