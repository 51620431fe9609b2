package revise

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/meshdiff"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
)

// undo undoes the records after a number, the last one first. It returns the documents that are not as the
// records left them.
func undo(state texts, records []store.Record, number int64) (modifiedOutside map[string]bool, err error) {
	modifiedOutside = make(map[string]bool)
	for _, r := range slices.Backward(records) {
		if r.Number <= number {
			break
		}
		edits, err := r.Edits()
		if err != nil {
			return nil, err
		}
		for _, e := range edits {
			if !equal(state.text(e.Name), e.After) {
				modifiedOutside[e.Name] = true
			}
			state.set(e.Name, e.Before)
		}
	}
	return modifiedOutside, nil
}

// restore returns the documents that were there after a record. It fails if the history does not reach back
// to it, or if a document was changed since without a record.
func restore(snapshot *store.Snapshot, records []store.Record, number int64) (texts, error) {
	if err := reaches(records, number); err != nil {
		return nil, err
	}
	state := textsOf(snapshot)
	modifiedOutside, err := undo(state, records, number)
	if err != nil {
		return nil, err
	}
	names, err := unrecorded(snapshot, records, number)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		modifiedOutside[name] = true
	}
	if len(modifiedOutside) > 0 {
		return nil, fmt.Errorf("these documents were modified outside dynxds since revision %d, so that their texts of that time are unknown: "+
			"%s; correct what \"dynxds get\" prints, and apply it", number, strings.Join(slices.Sorted(maps.Keys(modifiedOutside)), ", "))
	}
	return state, nil
}

// reaches returns an error if there are not all records from a number on.
func reaches(records []store.Record, number int64) error {
	if len(records) == 0 {
		return fmt.Errorf("there is no revision %d: the store has no history", number)
	}
	first, last := records[0].Number, records[len(records)-1].Number
	switch {
	case number < 0, number > last:
		return fmt.Errorf("there is no revision %d: the last one is %d", number, last)
	case number < first && (number > 0 || first > 1):
		return fmt.Errorf("revision %d is no longer in the history, which begins with %d (--keep limits it)", number, first)
	}
	for i, r := range records {
		if i > 0 && r.Number > number && r.Number != records[i-1].Number+1 {
			return fmt.Errorf("revision %d is missing in the history: it was deleted outside dynxds", r.Number-1)
		}
	}
	return nil
}

// unrecorded returns the documents that were changed after a record, though no later record mentions them, or
// that were deleted without a record.
func unrecorded(snapshot *store.Snapshot, records []store.Record, number int64) (names []string, err error) {
	at := records[0].Revision - 1 // for 0: that of the state before
	newer, last := make(map[string]bool), make(map[string]store.Edit)
	for _, r := range records {
		if r.Number == number {
			at = r.Revision
		}
		edits, err := r.Edits()
		if err != nil {
			return nil, err
		}
		for _, e := range edits {
			if r.Number > number {
				newer[e.Name] = true
			} else {
				last[e.Name] = e
			}
		}
	}
	for name, d := range snapshot.Documents {
		text := string(d.Data)
		if !newer[name] && d.ModRevision > at && !equal(last[name].After, &text) {
			names = append(names, name)
		}
	}
	for name, e := range last {
		if _, there := snapshot.Documents[name]; !newer[name] && !there && e.After != nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// Entry is a record with its edits and what it meant to clients.
type Entry struct {
	store.Record
	Edits   []store.Edit
	Changes []meshdiff.Change
	// Notes are what Changes cannot express.
	Notes []string
}

// Show returns a record of the history. What it meant to clients is found by undoing what came after it.
func Show(ctx context.Context, s *store.Store, number int64) (*Entry, error) {
	snapshot, err := s.Load(ctx)
	if err != nil {
		return nil, err
	}
	records, err := s.History(ctx, snapshot.Revision)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(records, func(r store.Record) bool { return r.Number == number })
	if i < 0 {
		return nil, cmp.Or(reaches(records, number), fmt.Errorf("there is no revision %d", number))
	}
	e := &Entry{Record: records[i]}
	if e.Edits, err = e.Record.Edits(); err != nil {
		return nil, err
	}
	if err := reaches(records, number); err != nil {
		e.Notes = append(e.Notes, err.Error())
		return e, nil
	}
	before, after := textsOf(snapshot), textsOf(snapshot)
	modifiedOutside, err := undo(after, records, number)
	if err != nil {
		return nil, err
	}
	if _, err := undo(before, records, number-1); err != nil {
		return nil, err
	}
	if len(modifiedOutside) > 0 {
		e.Notes = append(e.Notes, "modified outside dynxds since, so that their texts of that time are unknown: "+
			strings.Join(slices.Sorted(maps.Keys(modifiedOutside)), ", "))
	}
	p := &Plan{store: s}
	content, dropped, err := p.usable(after)
	if err == nil {
		var notes []string
		e.Changes, notes, err = p.compare(before, content)
		e.Notes = append(e.Notes, notes...)
	}
	if len(dropped) > 0 {
		e.Notes = append(e.Notes, "faulty documents count as absent: "+strings.Join(dropped, ", "))
	}
	if err != nil {
		e.Notes = append(e.Notes, "could not determine the effect on clients: "+err.Error())
	}
	return e, nil
}
