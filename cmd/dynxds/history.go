package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdline"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/exit"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/revise"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/faults"
)

const historyHelp = `Lists the revisions that "dynxds apply" and "dynxds rollback" wrote, the last one first: when, by whom,
with how many documents, and why. With a number it shows one of them: the documents with their changes,
and what clients got differently by it.

The numbers are of dynxds, not the revisions of etcd. What others write into etcd is not in the history.`

func newHistory() *cobra.Command {
	var (
		opts   store.Options
		format string
	)
	cmd := &cobra.Command{
		Use:   "history [REVISION]",
		Short: "List the revisions of the store: when, by whom, why",
		Long:  historyHelp,
		Args:  cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := openStore(opts)
			if err != nil {
				return err
			}
			defer s.Close()
			if len(args) == 0 {
				return listHistory(cmd, s, format)
			}
			number, err := revisionOf(args[0])
			if err != nil {
				return err
			}
			return showRevision(cmd, s, number, format)
		},
	}
	storeFlags(cmd, &opts)
	cmdline.TextOrData(cmd, &format)
	return cmd
}

// recordJSON is a record for JSON.
type recordJSON struct {
	store.Record
	Documents []documentEdit `json:"documents"`
}

// maxCell bounds a cell of the list: authors and messages are arbitrary text.
const maxCell = 200

func listHistory(cmd *cobra.Command, s *store.Store, format string) error {
	records, err := s.History(cmd.Context(), 0)
	if err != nil {
		return err
	}
	list := make([]recordJSON, 0, len(records))
	for _, r := range slices.Backward(records) {
		edits, err := r.Edits()
		if err != nil {
			return err
		}
		list = append(list, recordJSON{r, documentsOf(edits)})
	}
	if format != "text" {
		return cmdline.WriteData(cmd.OutOrStdout(), format, list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "no revisions yet")
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REVISION\tTIME\tAUTHOR\tCOMMAND\tDOCUMENTS\tMESSAGE")
	cell := func(text string) string { return faults.Printable(faults.Shorten(text, maxCell), "") }
	for _, r := range list {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%s\n", r.Number, r.Time.Format(time.RFC3339), cell(r.Author), cell(r.Command), len(r.Documents), cell(r.Message))
	}
	return w.Flush()
}

func showRevision(cmd *cobra.Command, s *store.Store, number int64, format string) error {
	entry, err := revise.Show(cmd.Context(), s, number)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	result := newOutcome(entry.Edits, entry.Changes, entry.Notes)
	if format != "text" {
		return cmdline.WriteData(out, format, struct {
			store.Record
			Edits []store.Edit `json:"edits"`
			outcome
		}{entry.Record, entry.Edits, result})
	}
	fmt.Fprintf(out, "revision %d, %s, by %s: %s\n", entry.Number, entry.Time.Format(time.RFC3339), faults.Printable(entry.Author, ""),
		faults.Printable(entry.Command, ""))
	if entry.Message != "" {
		// Each line of it is indented, as others would pass for those below.
		fmt.Fprintf(out, "    %s\n", strings.ReplaceAll(faults.Printable(entry.Message, "\n"), "\n", "\n    "))
	}
	for i, e := range entry.Edits {
		result.Documents[i].lines = revise.Lines(e.Before, e.After)
	}
	return result.print(out)
}

const getHelp = `Prints documents of the store, all or those with these names, which are names of files as
"dynxds apply" writes them. With --dir they are written into a folder that "dynxds serve", "dynxds
validate" and "dynxds apply" take.`

func newGet() *cobra.Command {
	var (
		opts store.Options
		dir  string
	)
	cmd := &cobra.Command{
		Use:   "get [NAME...]",
		Short: "Print documents of the store, or write them into a folder",
		Long:  getHelp,
		Args:  cobra.ArbitraryArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if !folder.IsName(name) {
					return exit.Usagef("%q is not a valid document name; names end in .yaml, .yml or .json and have no slash", name)
				}
			}
			s, err := openStore(opts)
			if err != nil {
				return err
			}
			defer s.Close()
			snapshot, err := s.Load(cmd.Context())
			if err != nil {
				return err
			}
			names, err := namesOf(snapshot, args)
			if err != nil {
				return err
			}
			if dir != "" {
				return writeFolder(dir, snapshot, names)
			}
			out := cmd.OutOrStdout()
			for i, name := range names {
				data := snapshot.Documents[name].Data
				if len(names) > 1 {
					fmt.Fprintf(out, "%s# %s\n", separator(i), faults.Printable(name, ""))
				}
				text := string(data)
				if text != "" && !strings.HasSuffix(text, "\n") {
					text += "\n"
				}
				if _, err := fmt.Fprint(out, text); err != nil {
					return err
				}
			}
			return nil
		},
	}
	storeFlags(cmd, &opts)
	cmd.Flags().StringVar(&dir, "dir", "", "a folder to write them into, each byte as it is; it is created if need be")
	_ = cmd.MarkFlagDirname("dir") // the flag is there
	return cmd
}

// separator begins a document after another one.
func separator(i int) string {
	if i == 0 {
		return ""
	}
	return "---\n"
}

// namesOf returns the wanted documents of a snapshot, all if none are named.
func namesOf(s *store.Snapshot, wanted []string) ([]string, error) {
	var all []string
	for name := range s.Documents {
		all = append(all, name)
	}
	slices.Sort(all)
	if len(wanted) == 0 {
		return all, nil
	}
	for _, name := range wanted {
		if _, ok := s.Documents[name]; !ok {
			return nil, fmt.Errorf("the store has no document %s; it has %d: %s", faults.Printable(name, ""), len(all), faults.Printable(faults.Shorten(strings.Join(all, ", "), 1000), ""))
		}
	}
	return wanted, nil
}

// writeFolder writes documents into a folder, which must have no others: applied again, these would be
// added.
func writeFolder(dir string, s *store.Snapshot, names []string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if folder.IsName(e.Name()) && !slices.Contains(names, e.Name()) {
			return fmt.Errorf("%s has %s, which is not one of these documents; choose another folder, or delete it", dir, faults.Printable(e.Name(), ""))
		}
	}
	// All are written beside their places before the first one is renamed: a full disk changes nothing.
	beside := make(map[string]string) // by name
	defer func() {
		for _, path := range beside {
			os.Remove(path) // what was renamed is not there
		}
	}()
	for _, name := range names {
		if !filepath.IsLocal(name) || filepath.Base(name) != name {
			return fmt.Errorf("the document %q cannot be a file here", name)
		}
		data := s.Documents[name].Data
		if now, err := os.ReadFile(filepath.Join(dir, name)); err == nil && bytes.Equal(now, data) {
			continue
		}
		beside[name] = filepath.Join(dir, fmt.Sprintf(".%s.%d.next", name, os.Getpid()))
		if err := writeNew(beside[name], data); err != nil {
			return fmt.Errorf("nothing was written into %s: %w", dir, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(beside)) {
		if err := os.Rename(beside[name], filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// writeNew writes a file that is on the disk when it returns.
func writeNew(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync() // some file systems say only here that the disk is full
	}
	return errors.Join(err, file.Close())
}
