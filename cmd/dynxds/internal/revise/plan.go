package revise

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/meshdiff"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/meshroute"
)

// Plan is a change of documents that was not written yet.
type Plan struct {
	// Edits are by name; there are none if there is nothing to do.
	Edits []store.Edit
	// Changes are what clients will get differently.
	Changes []meshdiff.Change
	// Notes are what Changes cannot express.
	Notes []string

	store      *store.Store
	snapshot   *store.Snapshot
	command    string
	paths      map[string]string
	validation *site.Validation
}

// Apply plans to write the documents of a folder and, with prune, to delete all others. The error has every
// fault of the documents that would be there.
func Apply(ctx context.Context, s *store.Store, dir string, prune bool, authority string) (*Plan, error) {
	files, err := readFolder(dir)
	if err != nil {
		return nil, err
	}
	snapshot, err := s.Load(ctx)
	if err != nil {
		return nil, err
	}
	p := &Plan{store: s, snapshot: snapshot, command: "apply", paths: make(map[string]string, len(files))}
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
		return errors.New("no document would be left, which replicas take for an accident and do not serve; keep one")
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
			if err = site.Buildable(content); err == nil {
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
			return nil, nil, fmt.Errorf("what is in the store now cannot be read: %w", err)
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

// Commit writes the plan as one revision. author and message are those of its record; of all records it leaves
// at most keep. The error is a *store.Conflict if the store has changed since the plan was made.
func (p *Plan) Commit(ctx context.Context, author Author, keep int) (store.Record, error) {
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
