package cluster

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// routeReports returns what is wrong with routes and policies, as far as the mesh that is built without the faulty ones does not say it.
func (s *Source) routeReports() (list []meshroute.Report) {
	verdicts, _ := s.Verdicts()
	for _, v := range verdicts {
		of := v.Name()
		add := func(severity meshroute.Severity, path, message string) {
			list = append(list, meshroute.Report{
				Severity: severity, Policy: v.Object.GetKind() + "/" + of, Source: meshroute.Source{File: of}, Path: path, Message: message,
				LeftOut: v.Faults != nil && severity == meshroute.Error,
			})
		}
		report := func(path, message string) { add(meshroute.Error, path, message) }
		faults := &document.Faults{}
		switch {
		case errors.As(v.Faults, &faults):
			for _, fault := range faults.List {
				fault.File, fault.Line = "", 0
				path := fault.Path
				fault.Path = ""
				report(path, fault.String())
			}
		case v.Faults != nil:
			report("", v.Faults.Error())
		}
		for _, ignored := range v.Ignored {
			add(meshroute.Warning, "", ignored+", which has no effect")
		}
		for _, p := range v.Parents {
			if p.Missing != "" {
				report("spec.parentRefs", p.Missing)
			}
		}
		for _, backend := range v.NotPermitted {
			report("", "no ReferenceGrant lets it use "+backend)
		}
		for _, text := range v.InvalidKind {
			report("", text)
		}
		if v.Object.GetKind() == meshpolicy.DocumentKind {
			for _, missing := range v.NotFound {
				report("", missing)
			}
		}
	}
	slices.SortFunc(list, func(a, b meshroute.Report) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	return list
}
