package certfiles

import (
	"crypto/x509"
	"fmt"
	"slices"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// VerifySPIFFE verifies the certificates of a server, its own first, against the bundle of
// its trust domain (gRFC A87): the first has to be a SPIFFE leaf certificate for a domain
// of the map, and to chain to a root of that domain. It returns the server's identity,
// also beside an error if the certificate has one. Host names are not looked at, as SPIFFE
// certificates need not have any.
func VerifySPIFFE(bundles map[string]*spiffebundle.Bundle, certificates []*x509.Certificate) (spiffeid.ID, error) {
	set := spiffebundle.NewSet()
	for _, bundle := range bundles {
		set.Add(bundle)
	}
	id, _, err := x509svid.Verify(certificates, set)
	if err != nil {
		return id, err
	}
	leaf := certificates[0]
	if len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) > 0 && !slices.ContainsFunc(leaf.ExtKeyUsage, serves) {
		return id, fmt.Errorf("the certificate of %s is not for servers: its extended key usage does not have serverAuth", id)
	}
	return id, nil
}

func serves(usage x509.ExtKeyUsage) bool {
	return usage == x509.ExtKeyUsageServerAuth || usage == x509.ExtKeyUsageAny
}
