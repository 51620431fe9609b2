package doctor

import (
	"context"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/status"
)

// Process examines the channels of a running process by what it says of them: that of a target, or all if target is empty. The
// error is that the process cannot be asked.
func Process(ctx context.Context, p status.Process, target string) (*Report, error) {
	answer, surveys, err := status.Survey(ctx, p, target)
	if err != nil {
		return nil, err
	}
	r := &Report{Of: p.Address}
	r.ok("process", p.Address, "it answers")
	for i := range answer.Clients {
		c := &answer.Clients[i]
		s := c.State
		if s == nil {
			r.warn("register csds in a process of dynxds to know more", "connections", "client "+c.Node, "the process says only what its xDS client holds")
			continue
		}
		r.servers(s.Time, s.Servers)
		for _, x := range s.Certificates {
			r.ok("certificate", x.File, "%s", livestate.CertificateEnd(x.NotAfter.Sub(s.Time)))
		}
		for j := range s.Channels {
			if x := &s.Channels[j]; x.Error != "" {
				r.fail("see docs/tasks/debugging.md", "channel", x.Target, "%s, %s: %s", x.State, x.Mode, x.Error)
			} else {
				r.ok("channel", x.Target, "%s, %s", x.State, x.Mode)
			}
		}
	}
	for _, s := range surveys {
		for _, c := range r.survey(s) {
			r.reported(c)
		}
	}
	return r, nil
}
