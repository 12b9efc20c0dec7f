// Command image packs the programs that were built for linux/amd64 and linux/arm64 into one OCI image layout.
//
//	image -dir DIR -bin DIR -out DIR -version VERSION -commit COMMIT -date DATE
//
// Contract:
//
//   - There is no base image, so nothing is pulled and nothing but Go and this project has to be kept up to date. Beside
//     the program the image holds what a static program needs: the certificates of public authorities, a user, and
//     folders to write to. It has no shell.
//   - The certificates are a file, /etc/ssl/certs/ca-certificates.crt, and not part of the program, so that who runs the
//     image can mount another one over it. They are those of the NSS trust store (golang.org/x/crypto/x509roots), in the
//     version that tools/go.mod names. Authorities that are trusted with restrictions are left out: a file can't say so.
//   - The program runs as user and group 65532.
//   - The license texts of everything that is in the program are in /usr/share/licenses.
//   - The index holds an SBOM (CycloneDX) for each image as an artifact that names it as its subject; the same files lie
//     in the output folder's sbom/.
//   - The output depends on the input alone: times are that of the commit.
package main
