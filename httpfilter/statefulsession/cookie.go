package statefulsession

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// clusterPrefix is before the name of the cluster in the cookie, as gRPC's own
// names for the targets of routes have it (gRFC A60).
const clusterPrefix = "cluster:"

// session is the content of a cookie or a header: "ADDRESS,ADDRESS…;cluster:NAME" in base64, or "…;cluster_specifier_plugin:NAME"
// (gRFCs A55, A60, A61).
type session struct {
	// addresses are those of one endpoint, the one in use first.
	addresses string
	// cluster is empty if the cookie names none.
	cluster string
}

// String names what has the session, for messages.
func (c *config) String() string {
	if c.header != "" {
		return fmt.Sprintf("header %q", c.header)
	}
	return fmt.Sprintf("cookie %q", c.name)
}

// applies reports whether the cookie is for RPCs of the method (RFC 6265,
// "Paths and Path-Match"). A header is for all.
func (c *config) applies(method string) bool {
	if c.header != "" {
		return true
	}
	path, _ := matching.SplitQuery(method)
	rest, ok := strings.CutPrefix(path, c.path)
	return ok && (rest == "" || rest[0] == '/' || c.path[len(c.path)-1] == '/')
}

// sessionValue returns the value of the header, or of the cookie: the first one of its name.
func (c *config) sessionValue(md metadata.MD) (value string, ok bool) {
	if c.header != "" {
		if values := md[c.header]; len(values) > 0 {
			return values[0], true
		}
		return "", false
	}
	for _, line := range md[cookieHeader] {
		for pair := range strings.SplitSeq(line, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
			if name != c.name {
				continue
			}
			if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
				value = value[1 : n-1]
			}
			return value, true
		}
	}
	return "", false
}

// decode reads the value of a cookie or header.
func decode(value string) (session, error) {
	// A client that stores the cookie may drop the padding.
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
	if err != nil {
		return session{}, errors.New("it is not in base64")
	}
	addresses, cluster, _ := strings.Cut(string(text), ";")
	for address := range strings.SplitSeq(addresses, ",") {
		if err := checkAddress(address); err != nil {
			return session{}, err
		}
	}
	s := session{addresses: addresses}
	if name, ok := strings.CutPrefix(cluster, clusterPrefix); ok {
		s.cluster = name
	} else if strings.HasPrefix(cluster, xdsname.PluginPrefix) {
		s.cluster = cluster
	}
	return s, nil
}

// checkAddress is for IP addresses with a port (gRFC A55), and for host names in
// their place, as this client takes endpoints with such addresses.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" {
		return fmt.Errorf("%.60q is no address", address)
	}
	return nil
}

// encode returns the value of a cookie or header.
func encode(s session) string {
	cluster := s.cluster
	if !strings.HasPrefix(cluster, xdsname.PluginPrefix) {
		cluster = clusterPrefix + cluster
	}
	return base64.StdEncoding.EncodeToString([]byte(s.addresses + ";" + cluster))
}

// setCookie returns the value of a Set-Cookie header for the session.
func (c *config) setCookie(s session) string {
	// Max-Age is in whole seconds, and 0 stands for none.
	age := min(math.Ceil(c.ttl.Seconds()), math.MaxInt32)
	cookie := http.Cookie{Name: c.name, Value: encode(s), Path: c.path, MaxAge: int(age), HttpOnly: true}
	return cookie.String()
}
