package folder

import (
	"os"
	"time"

	"github.com/dynxds/dynxds/internal/strictyaml"
	"github.com/dynxds/dynxds/meshroute"
)

// parse reads the documents of a file.
func parse(path string, info os.FileInfo, data []byte, at time.Time) *file {
	f := &file{info: info, data: data, readAt: at, content: &Content{}, faults: &strictyaml.Faults{}}
	for _, document := range strictyaml.Parse(path, data, f.faults) {
		f.read(document)
	}
	return f
}

// read adds one document to the file's content, or its faults to the file's.
func (f *file) read(document strictyaml.Value) {
	kind := document.Peek("kind")
	if !kind.Present() && faultOfBareResource(document) {
		return
	}
	// Kuma's own form of a policy has a type in place of a kind.
	if !kind.Present() {
		kind = document.Peek("type")
	}
	if !kind.Present() && document.Peek("spec").Present() {
		// Only policies have one, and need not say what they are.
		f.readPolicy(document)
		return
	}
	if !kind.Present() {
		document.Fault("add kind: "+kindService+", "+meshroute.PolicyKind+", "+kindDenial+" or "+kindResource,
			"the document does not say what it is")
		return
	}
	before := f.faults.Total()
	fine := func() bool { return f.faults.Total() == before }
	switch kind.OneOf(kindService, kindDenial, kindResource, meshroute.PolicyKind) {
	case kindService:
		if s := readService(document); fine() {
			f.content.Services = append(f.content.Services, s)
		}
	case kindDenial:
		if d := readDenial(document); fine() {
			f.content.Denials = append(f.content.Denials, *d)
		}
	case kindResource:
		if r := readResource(document); fine() {
			f.content.Resources = append(f.content.Resources, r)
		}
	case meshroute.PolicyKind:
		f.readPolicy(document)
	}
}

func (f *file) readPolicy(document strictyaml.Value) {
	if p := meshroute.ParseDocument(document, f.faults); p != nil {
		f.content.Policies = append(f.content.Policies, p)
	}
}

func source(v strictyaml.Value) meshroute.Source {
	return meshroute.Source{File: v.File(), Line: v.Line()}
}
