package site

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// Validation is the result of validating a folder that Run would serve.
type Validation struct {
	Content *folder.Content
	Reports []meshroute.Report
	// Strict makes Err count warnings, too.
	Strict bool
}

// Err returns an error if clients would get errors, or resources that they reject.
func (v *Validation) Err() error {
	number := make(map[meshroute.Severity]int)
	for _, r := range v.Reports {
		number[r.Severity]++
	}
	switch warnings := number[meshroute.Warning]; {
	case number[meshroute.Error] > 0:
		return fmt.Errorf("%s: clients would reject this configuration, or get errors in place of resources", faults.Count(number[meshroute.Error], "error"))
	case !v.Strict || warnings == 0:
		return nil
	case warnings == 1:
		return errors.New("1 warning, which counts as an error with --strict")
	default:
		return fmt.Errorf("%d warnings, which count as errors with --strict", warnings)
	}
}

// Validate reads a folder, builds what Run would serve, and decodes it as clients do. The error has every
// error for which Run would fail.
func Validate(ctx context.Context, dir, authority string) (*Validation, error) {
	content, err := folder.New(dir).Settled(ctx)
	if err != nil {
		return nil, err
	}
	v, err := ValidateContent(content, authority)
	if err != nil {
		return v, err
	}
	about := func(severity meshroute.Severity, message string) {
		v.Reports = append(v.Reports, meshroute.Report{Severity: severity, Source: meshroute.Source{File: dir}, Message: message})
	}
	if content.Documents() == 0 {
		about(meshroute.Warning, nothingToRead)
	}
	if unread := folder.Unread(dir); len(unread) > 0 {
		about(meshroute.Note, "not read, as only .yaml, .yml and .json are: "+faults.Few(unread, maxUnread, ", "))
	}
	return v, nil
}

// maxUnread bounds the files that are named as not read.
const maxUnread = 5

// ValidateContent is Validate of what was read already.
func ValidateContent(content *folder.Content, authority string) (*Validation, error) {
	loaded, err := loadContent(content, publish.Options{Authority: authority, Check: check, Permissive: true}) // to have all reports
	if err != nil {
		return nil, err
	}
	return &Validation{Content: content, Reports: slices.Concat(loaded.summary.Reports, loaded.summary.Rejected, loaded.dangling(authority))}, nil
}

// loaded is a content that was compiled into a store without a server.
type loaded struct {
	store     *controlplane.Store
	publisher *publish.Publisher
	content   *folder.Content
	summary   publish.Summary
	// all are the variants of all resources, and the errors in the places of some.
	all []Item
}

func loadContent(content *folder.Content, opts publish.Options) (*loaded, error) {
	l := &loaded{store: controlplane.NewStore(), content: content}
	l.publisher = publish.New(l.store, opts)
	var err error
	if l.summary, err = l.publisher.Publish(context.Background(), content); err != nil {
		return nil, err
	}
	types := slices.Collect(maps.Keys(order))
	for _, r := range content.Resources {
		types = append(types, r.Any.GetTypeUrl())
	}
	slices.Sort(types)
	for _, typeURL := range slices.Compact(types) {
		for _, r := range l.store.Resources(typeURL) {
			l.all = append(l.all, Item{typeURL, r.Name(), r.Parameters().Map(), r, nil})
		}
	}
	for _, r := range l.publisher.Errors() {
		l.all = append(l.all, Item{r.TypeURL, r.Name, r.Parameters.Map(), nil, r.Err})
	}
	slices.SortStableFunc(l.all, func(a, b Item) int {
		return reference{a.TypeURL, a.Name}.compare(reference{b.TypeURL, b.Name})
	})
	return l, nil
}
