package cluster

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// routeReports returns what is wrong with routes and policies, as far as the mesh that is built without the faulty ones does not say it.
func (s *Source) routeReports() (list []meshroute.Report) {
	routes, _ := s.Routes()
	for _, r := range routes {
		add := func(severity meshroute.Severity, path, message string) {
			list = append(list, meshroute.Report{
				Severity: severity, Policy: r.Object.GetKind() + "/" + r.Name(), Source: meshroute.Source{File: r.Name()}, Path: path, Message: message,
				LeftOut: r.Faults != nil && severity == meshroute.Error,
			})
		}
		faults := &document.Faults{}
		errors.As(r.Faults, &faults)
		for _, f := range faults.List {
			add(meshroute.Error, f.Path, document.Fault{Line: f.Line, Problem: f.Problem, Suggestion: f.Suggestion}.String())
		}
		for _, ignored := range r.Ignored {
			add(meshroute.Warning, "", ignored+", which has no effect")
		}
		for _, p := range r.Parents {
			if p.Missing != "" && !r.isPolicy() {
				add(meshroute.Error, "spec.parentRefs", p.Missing)
			}
		}
		for reason, texts := range r.Unresolved {
			if reason == BackendNotFound && !r.isPolicy() {
				continue
			}
			for _, text := range texts {
				add(meshroute.Error, "", text)
			}
		}
	}
	slices.SortFunc(list, func(a, b meshroute.Report) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	return list
}
