package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/internal/store"
)

const applyHelp = `Makes the documents in the store those of a folder: files that differ are written, each under its name, and
what the store has under other names is deleted.

Before that the folder is checked as "dynxds validate" does; nothing is written if a document has an error, or if clients
would get errors or reject what they get. All is written in one transaction: replicas, which watch the store, have all of
it or nothing. If another program writes at the same time, the last one wins, also as a whole. If the store has the same
files already, nothing is written. The history of the files is that of their Git repository.

What withdraws more than a third of the services waits at each replica for its --withdrawal-delay.

--dry-run prints what would be written, and how the resources that clients get would differ, as a unified diff.`

func newApply() *cobra.Command {
	var (
		stored    store.Options
		authority string
		dryRun    bool
	)
	cmd := &cobra.Command{
		Use:     "apply DIR",
		Short:   "Write a folder of services and policies into the store of replicas",
		Long:    applyHelp,
		Example: "  dynxds apply mesh/config --store etcd://localhost:2379 --dry-run",
		Args:    cmdline.Arguments("one argument", 1, 1), ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			if stored.URL == "" { // neither the flag nor the environment has it
				return exit.Usagef("which store? Use --store etcd://HOST:2379, or set %s", storeEnv)
			}
			s, err := store.Open(stored)
			if err != nil {
				return err
			}
			defer s.Close()
			content, texts, err := readValid(cmd, args[0], authority)
			if err != nil {
				return err
			}
			var before *store.Snapshot
			if dryRun {
				before, err = s.Load(cmd.Context())
			} else {
				before, err = s.Write(cmd.Context(), texts)
			}
			if err != nil {
				return err
			}
			return printChange(cmd.OutOrStdout(), s.Dir(), before, content, texts, dryRun)
		},
	}
	storeFlags(cmd, &stored)
	f := cmd.Flags()
	f.StringVar(&authority, "authority", "", "as for dynxds serve")
	f.BoolVar(&dryRun, "dry-run", false, "print what would change, and write nothing")
	return cmd
}

// readValid returns what a folder has, and the texts of its files by name. The error lists everything for which replicas
// would not publish it.
func readValid(cmd *cobra.Command, dir, authority string) (*folder.Content, map[string]string, error) {
	reader := folder.New(dir)
	content, err := reader.Settled(cmd.Context())
	if err != nil {
		return nil, nil, err
	}
	if content.Documents() == 0 {
		return nil, nil, fmt.Errorf("the folder %s has no documents, and replicas do not serve an empty store", dir)
	}
	v, err := site.ValidateContent(content, authority)
	if err != nil {
		return nil, nil, err
	}
	cmdline.PrintReports(cmd.ErrOrStderr(), v)
	return content, reader.Texts(), v.Err()
}

// printChange says what was written, or would be: the content, which has texts, in place of what a store had before.
func printChange(out io.Writer, place string, before *store.Snapshot, content *folder.Content, texts map[string]string, dryRun bool) error {
	edits := before.Edits(texts)
	if len(edits) == 0 {
		_, err := fmt.Fprintln(out, "no changes")
		return err
	}
	for _, e := range edits {
		fmt.Fprintln(out, faults.Printable(e.String(), ""))
	}
	old, err := contentOf(place, before)
	if err != nil {
		fmt.Fprintf(out, "note: the documents that the store has had have errors, and count as none: %s\n", faults.Printable(err.Error(), "\n\t"))
	}
	if w := site.Withdrawn(old, content); w.IsLarge() {
		fmt.Fprintf(out, "note: this withdraws %s; replicas wait for their --withdrawal-delay before they do that\n", faults.Printable(w.String(), ""))
	}
	if !dryRun {
		_, err := fmt.Fprintf(out, "written: %s\n", faults.Count(len(edits), "file"))
		return err
	}
	differ, err := site.Diff(out, old, content)
	if err == nil && differ == 0 {
		fmt.Fprintln(out, "no resource changes")
	}
	return err
}

// contentOf returns the content of the documents that a store had. With an error, for which replicas would not publish them,
// it is empty.
func contentOf(place string, before *store.Snapshot) (*folder.Content, error) {
	content, err := (&folder.Parser{Dir: place}).Parse(before.Documents)
	if err == nil {
		_, err = site.ValidateContent(content, "")
	}
	if err != nil {
		return &folder.Content{}, err
	}
	return content, nil
}
