package publish

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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

// named identifies a resource, key a variant of it.
type (
	named struct{ typeURL, name string }
	key   struct {
		named
		parameters string
	}
)

func keyOf(r *meshroute.Resource) key {
	return key{named{r.TypeURL, r.Name}, r.Parameters.Key()}
}

// update is the difference between two states.
type update struct {
	from *state
	// set and removed are the changed resources of the meshes, those that the folder overrides too.
	set, removed map[key]*meshroute.Resource
	// written are all resources of the folder, and overridden the names that some of them override.
	written    map[key]*meshroute.Resource
	overridden map[named]*folder.Resource
	// put and deleted are what changes in the store.
	put, deleted map[key]*meshroute.Resource
	// packed are the resources of put, without those that are errors.
	packed map[key]*controlplane.Resource
	// withheld are those of set that are not stored.
	withheld map[key]meshroute.Report
}

// addWritten adds the folder's resources. The error has those that conflict with the resources of
// services and policies.
func (u *update) addWritten(content *folder.Content) error {
	var faults document.Faults
	u.written = make(map[key]*meshroute.Resource, len(content.Resources))
	u.put, u.packed, u.deleted = map[key]*meshroute.Resource{}, map[key]*controlplane.Resource{}, maps.Clone(u.from.written)
	if u.deleted == nil {
		u.deleted = map[key]*meshroute.Resource{}
	}
	u.overridden, u.withheld = make(map[named]*folder.Resource), make(map[key]meshroute.Report)
	for _, r := range content.Resources {
		if r.Override {
			u.overridden[nameOf(r)] = r
		}
	}
	for _, r := range content.Resources {
		parameters, err := dynparam.NewParameters(r.Parameters)
		w := &meshroute.Resource{TypeURL: r.Any.GetTypeUrl(), Name: r.Name, Parameters: parameters, Message: r.Any}
		k := keyOf(w)
		if err != nil {
			faults.Add(fault(r, fmt.Sprintf("its dynamic parameters cannot be used: %v", err), ""))
		} else if made := u.makes(key{nameOf(r), k.parameters}); made != nil && u.overridden[nameOf(r)] == nil {
			text, other := place(content, made)
			conflict := fault(r, "a service has this resource already, "+text, "write override: true to replace it, rename it, or give it dynamic parameters")
			conflict.Other = other
			faults.Add(conflict)
		}
		u.written[k] = w
		if !isUnchanged(u.from.written[k], w) {
			u.put[k] = w
			if u.packed[k], err = packed(w, r.Any); err != nil {
				faults.Add(fault(r, err.Error(), "give it another name"))
			}
		}
		delete(u.deleted, k)
	}
	u.addMade()
	return faults.Err()
}

// nameOf returns the name of a resource of the folder as the meshes would have it.
func nameOf(r *folder.Resource) named { return named{r.Any.GetTypeUrl(), xdsname.Canonical(r.Name)} }

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
			return to.TargetRef.Name == r.Service || slices.Contains(to.Services(), r.Service)
		}) {
			return fmt.Sprintf("%s, which policy %s names at %s", r.Service, p.Name, p.Source), p.Source.File
		}
	}
	return r.Service, ""
}

// makes returns what the meshes have under a key after the update, or nil. If they have variants of it,
// the one for all clients counts as the one without parameters.
func (u *update) makes(k key) *meshroute.Resource {
	r := u.now(k)
	if r == nil && k.parameters == "" {
		// The parameters are valid.
		least, _ := dynparam.NewParameters(map[string]string{meshpolicy.SpecificityKey: "0"})
		k.parameters = least.Key()
		r = u.now(k)
	}
	return r
}

func (u *update) now(k key) *meshroute.Resource {
	if r := u.set[k]; r != nil || u.removed[k] != nil {
		return r
	}
	return u.from.made[k]
}

// addMade adds what changes in the store of the meshes: what differs and is not overridden, and the variants
// of names whose override is added or removed.
func (u *update) addMade() {
	for k, r := range u.set {
		if u.overridden[k.named] == nil {
			u.put[k] = r
		}
	}
	for k, r := range u.removed {
		if u.from.overridden[k.named] == nil {
			u.deleted[k] = r
		}
	}
	if len(u.overridden) == 0 && len(u.from.overridden) == 0 {
		return
	}
	for k, r := range u.from.made {
		is, was := u.overridden[k.named] != nil, u.from.overridden[k.named] != nil
		switch {
		case is && !was:
			u.deleted[k] = r
		case was && !is && u.set[k] == nil && u.removed[k] == nil:
			u.put[k] = r
		}
	}
}

// isUnchanged reports whether a rebuilt resource is equal to the old one.
func isUnchanged(old, new *meshroute.Resource) bool {
	switch {
	case old == nil:
		return false
	case old.Err != nil || new.Err != nil:
		return old.Err != nil && new.Err != nil && proto.Equal(old.Err.Proto(), new.Err.Proto())
	}
	return old.Message == new.Message || proto.Equal(old.Message, new.Message)
}

// pack serializes what the meshes have in put. Variants with equal contents share their bytes. What cannot be serialized is
// withheld if the content is Separate.
func (u *update) pack(content *folder.Content) error {
	shared := make(map[proto.Message]*anypb.Any)
	for k, r := range u.put {
		if r.Err != nil || u.packed[k] != nil {
			continue
		}
		made, err := packShared(r, shared)
		if err == nil {
			u.packed[k] = made
			continue
		}
		if !content.Separate {
			return err
		}
		report := meshroute.Report{Severity: meshroute.Error, Message: err.Error()}
		if i := slices.IndexFunc(content.Services, func(s *meshroute.Service) bool { return s.Name == r.Service }); i >= 0 {
			report.Source = content.Services[i].Source
		}
		u.withhold(k, report)
	}
	return nil
}

func packShared(r *meshroute.Resource, shared map[proto.Message]*anypb.Any) (*controlplane.Resource, error) {
	bytes := shared[r.Message]
	if bytes == nil {
		bytes = new(anypb.Any)
		if err := anypb.MarshalFrom(bytes, r.Message, proto.MarshalOptions{Deterministic: true}); err != nil {
			return nil, fmt.Errorf("serializing %s %s: %w", typeurl.ShortName(r.TypeURL), r.Name, err)
		}
		shared[r.Message] = bytes
	}
	return packed(r, bytes)
}

// withhold leaves a resource of the meshes out of the store. Clients keep what they have under its name; if there was nothing,
// they get an error.
func (u *update) withhold(k key, why meshroute.Report) {
	why.LeftOut = true
	u.withheld[k] = why
	r := u.put[k]
	delete(u.put, k)
	delete(u.packed, k)
	if u.from.made[k] == nil {
		u.put[k] = &meshroute.Resource{
			TypeURL: r.TypeURL, Name: r.Name, Service: r.Service, Parameters: r.Parameters,
			Err: status.New(codes.Internal, "the control plane does not send this, as clients would reject it: "+why.Message),
		}
	}
}

// withholdAll withholds what Options.Check refused.
func (u *update) withholdAll(refused map[*controlplane.Resource]meshroute.Report) {
	if len(refused) == 0 {
		return
	}
	for k, r := range maps.Clone(u.packed) {
		if why, ok := refused[r]; ok {
			u.withhold(k, why)
		}
	}
}

func packed(r *meshroute.Resource, bytes *anypb.Any) (*controlplane.Resource, error) {
	return controlplane.NewResource(&discoverypb.Resource{Name: r.Name, Resource: bytes, DynamicParameters: r.Parameters.Map()})
}

// puts returns the resources that are stored, in no order.
func (u *update) puts() []Put {
	puts := make([]Put, 0, len(u.packed))
	for k, r := range u.packed {
		puts = append(puts, Put{r, u.put[k].Service})
	}
	return puts
}

// what is Summary.What.
func (u *update) what() []string {
	names := make(map[string]bool)
	for _, changes := range []map[key]*meshroute.Resource{u.put, u.deleted} {
		for k, r := range changes {
			switch {
			case r.Service != "":
				names[r.Service] = true
			case u.written[k] == r || u.from.written[k] == r:
				names[typeurl.ShortName(k.typeURL)+" "+k.name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// apply applies the update to the store: removals first, as a resource may replace one of the same key.
func (u *update) apply(tx *controlplane.Tx) {
	for k, r := range u.deleted {
		tx.DeleteVariant(k.typeURL, k.name, r.Parameters.Map())
	}
	for k, r := range u.put {
		if r.Err != nil {
			tx.SetVariantError(k.typeURL, k.name, r.Parameters.Map(), r.Err)
			continue
		}
		tx.SetResource(u.packed[k])
	}
}

// keep applies the update to the state.
func (u *update) keep(s *state) {
	if s.made == nil {
		s.made = make(map[key]*meshroute.Resource, len(u.set))
	}
	for k := range u.removed {
		delete(s.made, k)
	}
	maps.Copy(s.made, u.set)
	s.written, s.overridden = u.written, u.overridden
	for _, done := range []map[key]*meshroute.Resource{u.removed, u.set} {
		for k := range done {
			delete(s.withheld, k)
		}
	}
	if s.withheld == nil {
		s.withheld = make(map[key]meshroute.Report, len(u.withheld))
	}
	maps.Copy(s.withheld, u.withheld)
}

// reports are about overrides of nothing, and about what is withheld.
func (s *state) reports() []meshroute.Report {
	reports := slices.Collect(maps.Values(s.withheld))
	idle := maps.Clone(s.overridden)
	if len(idle) > 0 {
		for k := range s.made {
			delete(idle, k.named)
		}
	}
	for _, r := range idle {
		reports = append(reports, meshroute.Report{Severity: meshroute.Warning, Source: r.Source, Path: "override",
			Message: fmt.Sprintf("no service has the %s, so there is nothing to replace", r)})
	}
	slices.SortFunc(reports, func(a, b meshroute.Report) int { return strings.Compare(a.String(), b.String()) })
	return reports
}
