package kubetest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Token signs a token of a service account as the API server does, whose own ones last ten minutes at least.
func (c *Cluster) Token(account *corev1.ServiceAccount, audience string, lasts time.Duration) (string, error) {
	text, err := os.ReadFile(c.path("sa.key"))
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", errors.New("sa.key has no PEM block")
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return "", err
	}
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"iss": Audience, "aud": []string{audience}, "sub": "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(lasts).Unix(),
		"kubernetes.io": map[string]any{"namespace": account.Namespace, "serviceaccount": map[string]any{"name": account.Name, "uid": account.UID}},
	})
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + encode(claims)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	if err != nil {
		return "", err
	}
	return signed + "." + encode(signature), nil
}
