package meshroute

import (
	"math/rand/v2"

	"github.com/dynxds/dynxds/internal/meshpolicy"
	"github.com/dynxds/dynxds/internal/meshpolicy/policytest"
)

func randomInput(r *rand.Rand) Input {
	in := Input{Policies: policytest.Policies(r, r.IntN(7))}
	for _, name := range policytest.Services {
		if r.IntN(8) > 0 {
			in.Services = append(in.Services, service(name, policytest.Tags(r, 0), policytest.Tags(r, 0)))
			if r.IntN(2) == 0 { // the servers are those of all services
				in.Services[len(in.Services)-1].TLS = &TLS{Identity: "id", Roots: "ca", SANs: exactSAN(name)}
			}
		}
	}
	for r.IntN(4) == 0 {
		d := Denial{Clients: policytest.Target(r), Reason: policytest.Pick(r, []string{"", "secret"})}
		if r.IntN(3) > 0 {
			d.To = meshpolicy.TargetRef{Name: policytest.Pick(r, policytest.Services)}
		}
		in.Denials = append(in.Denials, d)
	}
	return in
}
