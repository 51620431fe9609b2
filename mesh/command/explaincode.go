package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/errorcode"
	"github.com/dynxds/dynxds/mesh/internal/exit"
)

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
