package revise

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/meshdiff"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// Plan is a change of documents that was not written yet.
type Plan struct {
	// Edits are by name; there are none if there is nothing to do.
	Edits []store.Edit
	// Changes are what clients will get differently.
	Changes []meshdiff.Change
	// Notes are what Changes cannot express.
	Notes []string
	// Withdrawal is what clients will no longer reach.
	Withdrawal site.Withdrawal

	// again makes the plan from what the store has by now.
	again func(context.Context) (*Plan, error)

	store      *store.Store
	snapshot   *store.Snapshot
	command    string
	paths      map[string]string
	validation *site.Validation
}

// Apply plans to write the documents of a folder and, with prune, to delete all others. The error has every
// fault of the documents that would be there.
func Apply(ctx context.Context, s *store.Store, dir string, prune bool, authority string) (*Plan, error) {
	files, err := readFolder(ctx, dir)
	if err != nil {
		return nil, err
	}
	return apply(ctx, s, dir, files, prune, authority)
}

func apply(ctx context.Context, s *store.Store, dir string, files texts, prune bool, authority string) (*Plan, error) {
	snapshot, err := s.Load(ctx)
	if err != nil {
		return nil, err
	}
	p := &Plan{store: s, snapshot: snapshot, command: "apply", paths: make(map[string]string, len(files))}
	p.again = func(ctx context.Context) (*Plan, error) { return apply(ctx, s, dir, files, prune, authority) }
	if prune {
		p.command = "apply --prune"
	}
	after := make(texts, len(files))
	if !prune {
		after = textsOf(snapshot)
	}
	for name, text := range files {
		after[name], p.paths[name] = text, filepath.Join(dir, name)
	}
	return p, p.to(after, authority)
}

// Rollback plans to write the documents that were there after a record; 0 is before the first one.
func Rollback(ctx context.Context, s *store.Store, number int64, authority string) (*Plan, error) {
	snapshot, err := s.Load(ctx)
	if err != nil {
		return nil, err
	}
	records, err := s.History(ctx, snapshot.Revision)
	if err != nil {
		return nil, err
	}
	after, err := restore(snapshot, records, number)
	if err != nil {
		return nil, err
	}
	p := &Plan{store: s, snapshot: snapshot, command: fmt.Sprintf("rollback %d", number)}
	p.again = func(ctx context.Context) (*Plan, error) { return Rollback(ctx, s, number, authority) }
	return p, p.to(after, authority)
}

// to completes a plan whose result is a set of documents.
func (p *Plan) to(after texts, authority string) error {
	before := textsOf(p.snapshot)
	p.Edits = edits(before, after)
	switch {
	case len(after) == 0 && len(before) == 0:
		return nil
	case len(after) == 0:
		return errors.New("no document would be left, and replicas do not serve an empty store; keep one")
	}
	content, err := p.content(after, p.paths)
	if err != nil {
		return err
	}
	if p.validation, err = site.ValidateContent(content, authority); err != nil {
		return err
	}
	if len(p.Edits) > 0 {
		p.Changes, p.Notes, err = p.compare(before, content)
	}
	return err
}

// compare returns what clients get differently of the documents before and the content after.
func (p *Plan) compare(before texts, after *folder.Content) ([]meshdiff.Change, []string, error) {
	old, dropped, err := p.usable(before)
	if err != nil {
		return nil, nil, err
	}
	p.Withdrawal = site.Withdrawn(old, after)
	changes, notes, err := site.Compare(old, after)
	if len(dropped) > 0 {
		notes = append(notes, "faulty documents count as absent before, though replicas may serve the last good ones: "+strings.Join(dropped, ", "))
	}
	return changes, notes, err
}

// usable returns the content of documents without those that are faulty, and the names of these. Documents
// get into a store by other means than a Plan.
func (p *Plan) usable(all texts) (content *folder.Content, dropped []string, err error) {
	all = maps.Clone(all)
	for {
		if content, err = p.content(all, nil); err == nil {
			if err = site.Servable(content); err == nil {
				slices.Sort(dropped)
				return content, dropped, nil
			}
		}
		var faults *document.Faults
		if !errors.As(err, &faults) {
			return nil, nil, err
		}
		before := len(all)
		for _, fault := range faults.List {
			if name := filepath.Base(fault.File); all.has(name) {
				delete(all, name)
				dropped = append(dropped, name)
			}
		}
		if len(all) == before { // no document is at fault
			return nil, nil, fmt.Errorf("cannot read the current documents of the store: %w", err)
		}
	}
}

// content reads documents. paths are those under which faults name them; of others it is the store's.
func (p *Plan) content(all texts, paths map[string]string) (*folder.Content, error) {
	var files []*folder.File
	for _, name := range slices.Sorted(maps.Keys(all)) {
		path, ok := paths[name]
		if !ok {
			path = p.store.Dir() + "/" + name
		}
		files = append(files, folder.Parse(path, []byte(all[name])))
	}
	return folder.NewJoiner(p.store.Dir()).Join(files)
}

// Err returns an error if clients would get errors, or resources that they reject: see
// site.Validation.Err. Such a plan must not be committed.
func (p *Plan) Err() error {
	if p.validation == nil {
		return nil
	}
	return p.validation.Err()
}

// Validation is the result of validating what the plan results in, with the reports about edited documents
// and all errors; nil if there are no documents.
func (p *Plan) Validation() *site.Validation {
	if p.validation == nil {
		return nil
	}
	edited := make(map[string]bool, len(p.Edits))
	for _, e := range p.Edits {
		edited[e.Name] = true
	}
	v := *p.validation
	v.Reports = slices.DeleteFunc(slices.Clone(v.Reports), func(r meshroute.Report) bool {
		return r.Severity != meshroute.Error && !edited[filepath.Base(r.Source.File)]
	})
	return &v
}

// Withdraws returns an error if the plan withdraws more than a third of the services. Commit does not ask for it.
func (p *Plan) Withdraws() error {
	if !p.Withdrawal.IsLarge() {
		return nil
	}
	return fmt.Errorf("this would withdraw %s, more than a third; to confirm, add --withdraw", p.Withdrawal)
}

// Commit writes the plan as one revision. author and message are those of its record; of all records it leaves
// at most keep.
//
// If the store has changed since the plan was made, Commit makes it again, which checks all documents again, and writes
// it if it still changes the same documents in the same way. Changes are then those of the new plan. Otherwise the error is a
// *store.Conflict.
//
//	ada and bob read revision 7
//	ada writes a.yaml             revision 8
//	bob writes b.yaml             is refused; makes the plan again from revision 8, and writes revision 9
//	bob writes a.yaml             would be a conflict
func (p *Plan) Commit(ctx context.Context, author Author, keep int) (store.Record, error) {
	began := time.Now()
	for {
		r, err := p.commit(ctx, author, keep)
		if _, ok := errors.AsType[*store.Conflict](err); !ok || time.Since(began) > patience {
			return r, err
		}
		next, failed := p.again(ctx)
		if failed == nil {
			failed = next.Err()
		}
		switch {
		case failed != nil:
			return r, fmt.Errorf("%w. It conflicts with what was written meanwhile: %w", err, failed)
		case !slices.EqualFunc(p.Edits, next.Edits, sameEdit), next.Withdrawal.IsLarge() && !p.Withdrawal.IsLarge():
			return r, err
		}
		*p = *next
		// Those that write at the same time do not meet again.
		select {
		case <-ctx.Done():
			return r, err
		case <-time.After(rand.N(maxPause)):
		}
	}
}

const (
	// patience is how long Commit tries to write while others do.
	patience = 30 * time.Second
	// maxPause bounds the pause between two attempts.
	maxPause = 50 * time.Millisecond
)

func sameEdit(a, b store.Edit) bool {
	return a.Name == b.Name && equal(a.Before, b.Before) && equal(a.After, b.After)
}

func (p *Plan) commit(ctx context.Context, author Author, keep int) (store.Record, error) {
	if err := p.Err(); err != nil {
		return store.Record{}, err
	}
	if keep < 1 {
		return store.Record{}, errors.New("--keep must be at least 1: rollback needs a record")
	}
	return p.store.Commit(ctx, p.snapshot, store.Record{
		Author: author.Name, Time: author.Time, Command: p.command, Message: author.Message,
	}, p.Edits, keep)
}
