package folder

import (
	"strings"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// file is what one file says, and what is wrong with it by itself. It does not change.
type file struct {
	content Content
	faults  document.Faults
}

// parse reads the documents of a file. Faults and sources name it by its path.
func parse(path string, data []byte) *file {
	f := &file{}
	for _, doc := range document.Parse(path, data, &f.faults) {
		f.read(doc)
	}
	return f
}

// read adds one document to the file's content, or its errors.
func (f *file) read(doc document.Value) {
	if !doc.IsObject() {
		doc.Expected("an object")
		return
	}
	kind := doc.Peek("kind")
	if !kind.Present() && doc.Peek("spec").Present() { // only policies have one, and need no kind; Kuma's may have a type in its place
		if kind = doc.Peek("type"); !kind.Present() {
			f.readPolicy(doc, meshpolicy.DocumentKind)
			return
		}
	}
	if !kind.Present() {
		doc.Fault("add kind, which can be "+strings.Join(kinds, ", ")+`; an xDS resource is written as {kind: Resource, resource: {"@type": TYPE, …}}`, "the document has no kind")
		return
	}
	before := f.faults.Total()
	fine := func() bool { return f.faults.Total() == before }
	switch name := kind.OneOf(kinds...); name {
	case kindService:
		if faultOfKubernetesService(doc) {
			return
		}
		s := readService(doc)
		if !fine() {
			return
		}
		for _, e := range s.Check() {
			doc.FaultAt(e.Path, e.Problem)
		}
		if fine() {
			f.content.Services = append(f.content.Services, s)
		}
	case kindResource:
		if r := readResource(doc); fine() {
			f.content.Resources = append(f.content.Resources, r)
		}
	case meshpolicy.DocumentKind, meshpolicy.GRPCRouteKind, meshpolicy.HTTPRouteKind:
		f.readPolicy(doc, name)
	}
}

func (f *file) readPolicy(doc document.Value, kind string) {
	if p := meshpolicy.Read(doc, kind, nil); p != nil {
		f.content.Policies = append(f.content.Policies, p)
	}
}

func source(v document.Value) meshroute.Source {
	at := v.Position()
	return meshroute.Source{File: at.File, Line: at.Line}
}
