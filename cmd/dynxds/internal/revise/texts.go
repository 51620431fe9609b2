package revise

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/document"
)

// texts are documents by name.
type texts map[string]string

func (t texts) has(name string) bool {
	_, ok := t[name]
	return ok
}

// text returns a document, or nil.
func (t texts) text(name string) *string {
	if text, ok := t[name]; ok {
		return &text
	}
	return nil
}

func (t texts) set(name string, text *string) {
	if text == nil {
		delete(t, name)
	} else {
		t[name] = *text
	}
}

func textsOf(s *store.Snapshot) texts {
	all := make(texts, len(s.Documents))
	for name, d := range s.Documents {
		all[name] = string(d.Data)
	}
	return all
}

// edits returns what makes one set of documents of another, by name.
func edits(before, after texts) []store.Edit {
	names := maps.Clone(after)
	if names == nil {
		names = texts{}
	}
	maps.Copy(names, before)
	var list []store.Edit
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if e := (store.Edit{Name: name, Before: before.text(name), After: after.text(name)}); !equal(e.Before, e.After) {
			list = append(list, e)
		}
	}
	return list
}

func equal(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// readFolder returns the documents of a folder.
func readFolder(ctx context.Context, dir string) (texts, error) {
	reader := folder.New(dir)
	if _, err := reader.Settled(ctx); err != nil {
		if _, ok := err.(*document.Faults); !ok { // those are looked for in the whole that is to result
			return nil, err
		}
	}
	all := reader.Texts()
	if len(all) == 0 {
		return nil, fmt.Errorf("the folder %s has no .yaml, .yml or .json file", dir)
	}
	return all, nil
}

// Author is who changes documents, when, and why.
type Author struct {
	Name    string
	Time    time.Time
	Message string
}

// DefaultAuthor returns user@host.
func DefaultAuthor() string {
	name := cmp.Or(os.Getenv("USER"), strconv.Itoa(os.Getuid()))
	if u, err := user.Current(); err == nil {
		name = cmp.Or(u.Username, name)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return name + "@" + host
}
