package site

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// note keeps what the newest documents are: waiting, as p.withheld has it, faulty, or neither.
func (p *plane) note(err error) {
	p.state.Set(func(s *planestate.State) {
		s.Permissive, s.Waiting, s.WaitingUntil = p.opts.Permissive, "", nil
		if w := p.withheld; w != nil {
			until := w.due
			s.Waiting = fmt.Sprintf("the change withdraws %s (%s), more than a third of all",
				faults.Count(len(w.Services), "service"), faults.Shorten(strings.Join(w.Services, ", "), maxNamed))
			s.WaitingUntil = &until
		}
		if err == nil {
			s.FaultySince, s.Faults, s.First = nil, 0, ""
			return
		}
		if s.FaultySince == nil {
			now := time.Now()
			s.FaultySince = &now
		}
		s.Faults, s.First = 1, err.Error()
		if several, ok := errors.AsType[*document.Faults](err); ok && len(several.List) > 0 {
			s.Faults, s.First = several.Total(), several.List[0].String()
		}
		s.First = faults.Printable(faults.Shorten(s.First, faults.MaxProblem), "")
	})
}

// publishedOf is the state of an update, about which there are these reports.
func publishedOf(content *folder.Content, summary *publish.Summary, reports []meshroute.Report) *planestate.Published {
	p := &planestate.Published{
		At: time.Now(), Version: summary.Version, Changed: summary.Changed, Removed: summary.Removed,
		Documents: content.Documents(), Services: len(content.Services), Policies: len(content.Policies),
	}
	for _, name := range summary.What[:min(len(summary.What), planestate.MaxWhat)] {
		p.What = append(p.What, faults.Shorten(name, maxNamed))
	}
	p.More = len(summary.What) - len(p.What)
	of := func(severity meshroute.Severity) (n int) {
		for _, report := range reports {
			if report.Severity != severity {
				continue
			}
			if n++; len(p.Reports) < planestate.MaxReports {
				p.Reports = append(p.Reports, faults.Printable(faults.Shorten(report.String(), faults.MaxProblem), ""))
			}
		}
		return n
	}
	p.Errors = of(meshroute.Error)
	p.Warnings = of(meshroute.Warning)
	for _, report := range reports {
		if report.LeftOut {
			p.LeftOut++
		}
	}
	return p
}
