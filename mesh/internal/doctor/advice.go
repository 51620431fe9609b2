package doctor

import "strings"

// advice is what to do about errors, by texts in them with "|" between. The first that applies counts; "" is in all errors.
type advice []struct{ texts, do string }

// about says what to do about an error.
func (all advice) about(err string) string {
	for _, a := range all {
		for text := range strings.SplitSeq(a.texts, "|") {
			if strings.Contains(err, text) {
				return a.do
			}
		}
	}
	return ""
}

// servers is for the errors of management servers.
var servers = advice{
	{"is no xDS server", "give server_uri in the bootstrap the address of the control plane; this may be that of a backend"},
	{"token file", "correct jwt_token_file of call_creds in the bootstrap, and mount the token"},
	{"Unauthenticated|PermissionDenied", "give the client what the control plane asks for: a token by call_creds, or a certificate by channel_creds in the bootstrap"},
	{"", "look at the log of the control plane, and at the network to it; resources that are in use stay in use"},
}

// endpoints is for the errors of connections to endpoints.
var endpoints = advice{
	{"connection refused", "start the server, or correct its address in the control plane"},
	{"does not speak TLS", "the server is in plaintext, and the Cluster asks for TLS: give the server a certificate, or remove the Cluster's transport_socket"},
	{"certificate provider", "add the instance to certificate_providers of the bootstrap, or correct its files"},
	{"certificate|x509|tls:", "compare the server's certificate with the roots and names that the Cluster asks for (docs/tasks/tls.md)"},
	{"timeout|in time|deadline|timed out", "look for a firewall or a NetworkPolicy between this host and the server"},
	{"no such host", "correct the name in the control plane, or in DNS"},
	{"error reading server preface|EOF|reset by peer", "the server may want TLS, which the Cluster does not ask for, or is no gRPC server (docs/tasks/tls.md)"},
	{"", "look at the log of the server"},
}
