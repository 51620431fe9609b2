package publish

import (
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// made returns what the meshes have under a key, nil for nothing.
func (s *state) made(key string) *meshroute.Resource {
	for _, mesh := range s.meshes {
		if r := mesh.Resource(key); r != nil {
			return r
		}
	}
	return nil
}

// wants returns what the store is to have under a key, nil for nothing.
func (s *state) wants(key string) *meshroute.Resource {
	if w, ok := s.written[key]; ok {
		return w.Resource
	}
	if r := s.made(key); r != nil && s.overridden[nameOf(r)] == nil {
		return r
	}
	return nil
}

// update leads from one state to another. Its maps are by meshroute.Resource.Key.
type update struct {
	before, after *state
	// put and deleted are what changes in the store, and packed are the resources of put, without those that are errors.
	put, deleted map[string]*meshroute.Resource
	packed       map[string]*controlplane.Resource
}

// difference returns the update to another state, whose meshes are built from those of this one. Notes on what it does not change stay.
func (s *state) difference(next *state) *update {
	next.notes = maps.Clone(s.notes)
	u := &update{
		before: s, after: next, put: map[string]*meshroute.Resource{}, deleted: map[string]*meshroute.Resource{},
		packed: map[string]*controlplane.Resource{},
	}
	compare := func(key string) {
		old, now := s.wants(key), next.wants(key)
		switch {
		case now == nil && old != nil:
			u.deleted[key] = old
		case now != nil && (old == nil || !old.Equal(now)):
			u.put[key] = now
		default:
			return
		}
		delete(next.notes, key)
	}
	for i, mesh := range next.meshes {
		changed, removed := mesh.Changes(s.mesh(i))
		for _, r := range slices.Concat(changed, removed) {
			compare(r.Key())
		}
		if len(next.overridden)+len(s.overridden) == 0 {
			continue
		}
		for r := range mesh.All {
			if (next.overridden[nameOf(r)] == nil) != (s.overridden[nameOf(r)] == nil) {
				compare(r.Key())
			}
		}
	}
	for _, resources := range []map[string]written{s.written, next.written} {
		for key := range resources {
			compare(key)
		}
	}
	return u
}

// write reads the folder's resources.
func (s *state) write(content *folder.Content) error {
	var faults document.Faults
	for _, r := range content.Resources {
		if r.Override {
			s.overridden[named{r.Any.GetTypeUrl(), xdsname.Canonical(r.Name)}] = r
		}
	}
	for _, r := range content.Resources {
		parameters, err := dynparam.NewParameters(r.Parameters)
		w := &meshroute.Resource{TypeURL: r.Any.GetTypeUrl(), Name: r.Name, Parameters: parameters, Message: r.Any}
		if err != nil {
			faults.Add(fault(r, fmt.Sprintf("its dynamic parameters cannot be used: %v", err), ""))
		} else if made := s.clash(*w); made != nil && s.overridden[nameOf(made)] == nil {
			text, other := place(content, made)
			conflict := fault(r, "a service has this resource already, "+text, "write override: true to replace it, rename it, or give it dynamic parameters")
			conflict.Other = other
			faults.Add(conflict)
		}
		s.written[w.Key()] = written{w, r}
	}
	return faults.Err()
}

// nameOf returns the name of a resource of the meshes.
func nameOf(r *meshroute.Resource) named { return named{r.TypeURL, r.Name} }

func fault(r *folder.Resource, problem, suggestion string) document.Fault {
	return document.Fault{
		File: r.Source.File, Line: r.Source.Line, Problem: fmt.Sprintf("%s: %s", r, problem), Suggestion: suggestion,
	}
}

// place says where the documents have the service of a resource, or a policy that names it if it is missing, and in
// which file.
func place(content *folder.Content, r *meshroute.Resource) (text, file string) {
	for _, s := range content.Services {
		serves := func(e meshroute.Endpoint) bool {
			return strings.HasSuffix(r.Name, strings.ReplaceAll(meshroute.ServerListenerTemplate, "%s", e.Address))
		}
		if s.Name == r.Service || r.Service == "" && slices.ContainsFunc(s.Endpoints, serves) {
			return fmt.Sprintf("%s at %s", s.Name, s.Source), s.Source.File
		}
	}
	for _, p := range content.Policies {
		if slices.ContainsFunc(p.To, func(to meshpolicy.To) bool {
			return to.TargetRef.Name == r.Service || to.Subsets()[r.Service] != nil
		}) {
			return fmt.Sprintf("%s, which policy %s names at %s", r.Service, p.Name, p.Source), p.Source.File
		}
	}
	return r.Service, ""
}

// clash returns what the meshes have under the name and the parameters of a resource of the folder, or nil. If they have variants of it,
// the one for all clients counts as the one without parameters.
func (s *state) clash(r meshroute.Resource) *meshroute.Resource {
	r.Name = xdsname.Canonical(r.Name)
	made := s.made(r.Key())
	if made == nil && r.Parameters.IsZero() {
		r.Parameters, _ = dynparam.NewParameters(map[string]string{meshpolicy.SpecificityKey: "0"}) // which are valid
		made = s.made(r.Key())
	}
	return made
}

// pack serializes what is put. Variants with equal contents share their bytes. What cannot be serialized is
// withheld if the content is Separate.
func (u *update) pack(content *folder.Content) error {
	var faults document.Faults
	shared := make(map[proto.Message]*anypb.Any)
	for k, r := range u.put {
		if r.Err != nil {
			continue
		}
		made, err := packed(r, shared)
		w, isWritten := u.after.written[k]
		switch {
		case err == nil:
			u.packed[k] = made
		case isWritten:
			faults.Add(fault(w.from, err.Error(), "give it another name"))
		case content.Separate:
			u.withhold(k, meshroute.Report{Severity: meshroute.Error, Source: u.source(content, k), Message: err.Error()})
		default:
			return err
		}
	}
	return faults.Err()
}

func packed(r *meshroute.Resource, shared map[proto.Message]*anypb.Any) (*controlplane.Resource, error) {
	bytes, ok := r.Message.(*anypb.Any)
	if !ok {
		bytes = shared[r.Message]
	}
	if bytes == nil {
		bytes = new(anypb.Any)
		if err := anypb.MarshalFrom(bytes, r.Message, proto.MarshalOptions{Deterministic: true}); err != nil {
			return nil, fmt.Errorf("serializing %s %s: %w", typeurl.ShortName(r.TypeURL), r.Name, err)
		}
		shared[r.Message] = bytes
	}
	return controlplane.NewResource(&discoverypb.Resource{Name: r.Name, Resource: bytes, DynamicParameters: r.Parameters.Map()})
}

// source is where the resource of a key, or its service, is written.
func (u *update) source(content *folder.Content, k string) meshroute.Source {
	if w, ok := u.after.written[k]; ok {
		return w.from.Source
	}
	if i := slices.IndexFunc(content.Services, func(s *meshroute.Service) bool { return s.Name == u.put[k].Service }); i >= 0 {
		return content.Services[i].Source
	}
	return meshroute.Source{}
}

// check asks what clients reject of the packed resources. The error has that, unless they get it nevertheless, as the publisher is
// permissive; or do not get it, as it is withheld in a content that is Separate.
func (u *update) check(content *folder.Content, opts *Options) error {
	if opts.Check == nil {
		return nil
	}
	verdicts := u.verdicts(opts.Check)
	for k, r := range u.packed {
		report := *verdicts[r.Any()]
		if _, isWritten := u.after.written[k]; report.Message == "" || report.Severity == meshroute.Warning && !isWritten {
			continue
		}
		name := typeurl.ShortName(r.Any().GetTypeUrl()) + " " + r.Name()
		if !r.Parameters().IsZero() {
			name += " " + r.Parameters().String()
		}
		report.Source, report.Message = u.source(content, k), name+": "+report.Message
		u.after.notes[k] = report
		if report.Severity == meshroute.Error && content.Separate && !opts.Permissive {
			u.withhold(k, report)
		}
	}
	if content.Separate || opts.Permissive {
		return nil
	}
	return ErrorsIn(sortedReports(maps.Values(u.after.notes)))
}

// verdicts checks the packed resources on all cores: when a server starts, these are all that there are. Variants may share their bytes.
func (u *update) verdicts(check func(*controlplane.Resource) (meshroute.Severity, string)) map[*anypb.Any]*meshroute.Report {
	all := make(map[*anypb.Any]*meshroute.Report, len(u.packed))
	work := make(chan *controlplane.Resource, len(u.packed))
	for _, r := range u.packed {
		if all[r.Any()] == nil {
			all[r.Any()] = new(meshroute.Report)
			work <- r
		}
	}
	close(work)
	var checking sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(work)) {
		checking.Go(func() {
			for r := range work {
				v := all[r.Any()]
				v.Severity, v.Message = check(r)
			}
		})
	}
	checking.Wait()
	return all
}

// withhold leaves a resource of the meshes out of the store. Clients keep what they have under its name; if there was nothing,
// they get an error.
func (u *update) withhold(k string, why meshroute.Report) {
	why.LeftOut = true
	u.after.notes[k] = why
	r := u.put[k]
	delete(u.put, k)
	delete(u.packed, k)
	if u.before.wants(k) == nil {
		u.put[k] = &meshroute.Resource{
			TypeURL: r.TypeURL, Name: r.Name, Service: r.Service, Parameters: r.Parameters,
			Err: status.New(codes.Internal, "the control plane does not send this, as clients would reject it: "+why.Message),
		}
	}
}

// what is Summary.What.
func (u *update) what() []string {
	names := make(map[string]bool)
	for _, changes := range []map[string]*meshroute.Resource{u.put, u.deleted} {
		for k, r := range changes {
			switch {
			case r.Service != "":
				names[r.Service] = true
			case u.after.written[k].Resource == r || u.before.written[k].Resource == r:
				names[typeurl.ShortName(r.TypeURL)+" "+r.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// apply applies the update to the store.
func (u *update) apply(tx *controlplane.Tx) {
	for _, r := range u.deleted {
		tx.DeleteVariant(r.TypeURL, r.Name, r.Parameters.Map())
	}
	for k, r := range u.put {
		if r.Err != nil {
			tx.SetVariantError(r.TypeURL, r.Name, r.Parameters.Map(), r.Err)
			continue
		}
		tx.SetResource(u.packed[k])
	}
}

// reports are about overrides of nothing, and what clients do not get. rejected are those about what they reject and get nevertheless.
func (s *state) reports() (reports, rejected []meshroute.Report) {
	for _, r := range s.notes {
		if r.Severity == meshroute.Error && !r.LeftOut {
			rejected = append(rejected, r)
		} else {
			reports = append(reports, r)
		}
	}
	idle := maps.Clone(s.overridden)
	if len(idle) > 0 {
		for _, mesh := range s.meshes {
			for r := range mesh.All {
				delete(idle, nameOf(r))
			}
		}
	}
	for _, r := range idle {
		reports = append(reports, meshroute.Report{Severity: meshroute.Warning, Source: r.Source, Path: "override",
			Message: fmt.Sprintf("no service has the %s, so there is nothing to replace", r)})
	}
	return sortedReports(slices.Values(reports)), sortedReports(slices.Values(rejected))
}

func sortedReports(reports iter.Seq[meshroute.Report]) []meshroute.Report {
	return slices.Compact(slices.SortedFunc(reports, func(a, b meshroute.Report) int { return strings.Compare(a.String(), b.String()) }))
}

// ErrorsIn returns the errors among reports as one, a *document.Faults, or nil.
func ErrorsIn(reports []meshroute.Report) error {
	var all document.Faults
	for _, report := range reports {
		if report.Severity == meshroute.Error {
			all.Add(document.Fault{File: report.Source.File, Line: report.Source.Line, Problem: report.Message})
		}
	}
	return all.Err()
}
