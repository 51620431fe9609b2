package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdline"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/exit"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/meshdiff"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/revise"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/faults"
)

const applyHelp = `Writes the documents of a folder into the store, each under the name of its file. What the store
has under other names stays, unless --prune is given.

Before that, all documents that would be there are checked together, as "dynxds validate" does;
nothing is written if one has a fault, or if clients would get errors or reject what they
get; and if more than a third of the services would be withdrawn, only with --withdraw. Then it says which documents change, and which clients get what differently. All is written
in one transaction, as a revision that "dynxds history" shows and "dynxds rollback" undoes. If
others have written other documents in between, all is checked again with these; if they have
written the same ones, nothing is written.`

func newApply() *cobra.Command {
	var (
		r     revision
		prune bool
	)
	cmd := &cobra.Command{
		Use:     "apply DIR",
		Short:   "Write a folder of services and policies into the store of replicas",
		Long:    applyHelp,
		Example: "  dynxds apply mesh/config --store etcd://localhost:2379 -m 'more endpoints'",
		Args:    oneArgument, ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := r.run(cmd, func(ctx context.Context, s *store.Store) (*revise.Plan, error) {
				return revise.Apply(ctx, s, args[0], prune, r.authority)
			})
			return err
		},
	}
	r.flags(cmd)
	r.writeFlags(cmd)
	pruneFlag(cmd, &prune)
	return cmd
}

func pruneFlag(cmd *cobra.Command, prune *bool) {
	cmd.Flags().BoolVar(prune, "prune", false, "also delete the documents that are in the store and not in DIR")
}

const diffHelp = `Says what "dynxds apply" would do, and writes nothing: which documents would change, and which
clients would get what differently. The exit status is 0 if no document differs, and 1 if one does, or
if apply would refuse to write, which standard error then says.`

func newDiff() *cobra.Command {
	var (
		r     = revision{dryRun: true}
		prune bool
	)
	cmd := &cobra.Command{
		Use:   "diff DIR",
		Short: "Say what apply would change, for which clients",
		Long:  diffHelp,
		Args:  oneArgument, ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			differs, err := r.run(cmd, func(ctx context.Context, s *store.Store) (*revise.Plan, error) {
				return revise.Apply(ctx, s, args[0], prune, r.authority)
			})
			if err == nil && differs {
				return &exit.Error{Code: exit.No}
			}
			return err
		},
	}
	r.flags(cmd)
	pruneFlag(cmd, &prune)
	return cmd
}

const rollbackHelp = `Writes the documents that were there after a revision of "dynxds history"; 0 is before the
first one. It is a new revision, which is checked and shown as by "dynxds apply", and can be undone
too.

It fails if the history does not reach back so far, and if a document was changed since by other means
than dynxds, as its text at that revision is then unknown.`

func newRollback() *cobra.Command {
	var r revision
	cmd := &cobra.Command{
		Use:   "rollback REVISION",
		Short: "Restore the documents that were there after a revision",
		Long:  rollbackHelp,
		Args:  oneArgument, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := revisionOf(args[0])
			if err != nil {
				return err
			}
			_, err = r.run(cmd, func(ctx context.Context, s *store.Store) (*revise.Plan, error) {
				return revise.Rollback(ctx, s, number, r.authority)
			})
			return err
		},
	}
	r.flags(cmd)
	r.writeFlags(cmd)
	return cmd
}

func revisionOf(arg string) (int64, error) {
	number, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || number < 0 {
		return 0, exit.Usagef("%q is not the number of a revision; \"dynxds history\" lists them", arg)
	}
	return number, nil
}

// revision is a change of the store's documents, by flags.
type revision struct {
	store     store.Options
	authority string
	author    revise.Author
	keep      int
	withdraw  bool
	dryRun    bool
	format    string
}

func (r *revision) flags(cmd *cobra.Command) {
	storeFlags(cmd, &r.store)
	f := cmd.Flags()
	f.StringVar(&r.authority, "authority", "", "as for dynxds serve")
	cmdline.TextOrData(cmd, &r.format)
}

// writeFlags adds the flags of commands that write.
func (r *revision) writeFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&r.withdraw, "withdraw", false, "also write what withdraws more than a third of the services")
	f.BoolVar(&r.dryRun, "dry-run", false, "check and show, but write nothing")
	f.StringVarP(&r.author.Message, "message", "m", "", "what the change is for, for the history")
	f.StringVar(&r.author.Name, "author", "", "who makes it, for the history; by default user@host")
	f.IntVar(&r.keep, "keep", 100, "how many revisions the history has at most, with this one")
}

// run makes a plan, shows it, and, if that is asked for, writes it. It reports whether documents differ.
func (r *revision) run(cmd *cobra.Command, plan func(context.Context, *store.Store) (*revise.Plan, error)) (differs bool, err error) {
	s, err := openStore(r.store)
	if err != nil {
		return false, err
	}
	defer s.Close()
	p, err := plan(cmd.Context(), s)
	if err != nil {
		return false, err
	}
	out := cmd.OutOrStdout()
	if v := p.Validation(); v != nil {
		cmdline.PrintReports(cmd.ErrOrStderr(), v)
	}
	if err := p.Err(); err != nil {
		return false, err
	}
	large := p.Withdraws()
	if large != nil && r.dryRun {
		p.Notes = append(p.Notes, large.Error())
	}
	result := newOutcome(p.Edits, p.Changes, p.Notes)
	if len(p.Edits) > 0 && !r.dryRun {
		// Shown before it is written: the commit may fail.
		if r.format == "text" {
			result.print(out)
		}
		if large != nil && !r.withdraw {
			return true, fmt.Errorf("nothing was written: %w", large)
		}
		if r.author.Name == "" {
			r.author.Name = revise.DefaultAuthor()
		}
		r.author.Time = time.Now().UTC()
		shown := meshdiff.Text(p.Changes)
		record, err := p.Commit(cmd.Context(), r.author, r.keep)
		if err != nil {
			return true, err
		}
		result = newOutcome(p.Edits, p.Changes, p.Notes)
		if r.format == "text" && meshdiff.Text(p.Changes) != shown {
			fmt.Fprintln(out, "the store has changed meanwhile; the plan is now:")
			result.print(out)
		}
		if result.Revision = record.Number; r.format == "text" {
			_, err = fmt.Fprintf(out, "written as revision %d\n", record.Number)
			return true, err
		}
	}
	if r.format != "text" {
		return len(p.Edits) > 0, cmdline.WriteData(out, r.format, result)
	}
	return len(p.Edits) > 0, result.print(out)
}

// openStore needs the URL, which the flag or the environment has.
func openStore(opts store.Options) (*store.Store, error) {
	if opts.URL == "" {
		return nil, exit.Usagef("which store? Use --store etcd://HOST:2379, or set %s", storeEnv)
	}
	return store.Open(opts)
}

// outcome is the effect of a change.
type outcome struct {
	// Revision is the number of the revision that was written, 0 for none.
	Revision  int64             `json:"revision,omitempty"`
	Documents []documentEdit    `json:"documents"`
	Changes   []meshdiff.Change `json:"changes"`
	Notes     []string          `json:"notes,omitempty"`
}

// newOutcome returns lists that are not null in JSON.
func newOutcome(edits []store.Edit, changes []meshdiff.Change, notes []string) outcome {
	return outcome{Documents: documentsOf(edits), Changes: append([]meshdiff.Change{}, changes...), Notes: notes}
}

type documentEdit struct {
	Op   meshdiff.Op `json:"op"`
	Name string      `json:"name"`
	// lines are printed, of revisions in the history.
	lines []string
}

func documentsOf(edits []store.Edit) []documentEdit {
	list := make([]documentEdit, len(edits))
	for i, e := range edits {
		list[i] = documentEdit{Op: meshdiff.Changed, Name: e.Name}
		if e.Before == nil {
			list[i].Op = meshdiff.Added
		} else if e.After == nil {
			list[i].Op = meshdiff.Removed
		}
	}
	return list
}

// maxLines bounds the lines that are printed of one document.
const maxLines = 100

func (o *outcome) print(out io.Writer) error {
	if len(o.Documents) == 0 {
		_, err := fmt.Fprintln(out, "no changes")
		return err
	}
	for _, d := range o.Documents {
		fmt.Fprintf(out, "%s document %s\n", d.Op.Sign(), faults.Printable(d.Name, ""))
		for i, line := range d.lines {
			if i == maxLines && len(d.lines) > maxLines+1 {
				fmt.Fprintf(out, "    … %s; -o json has all\n", faults.Count(len(d.lines)-i, "more line"))
				break
			}
			fmt.Fprintf(out, "    %s\n", faults.Printable(line, "\t"))
		}
	}
	text := meshdiff.Text(o.Changes)
	if text == "" {
		text = "no client is affected\n"
	}
	for _, note := range o.Notes {
		text += "note: " + faults.Printable(note, "\n\t") + "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}
